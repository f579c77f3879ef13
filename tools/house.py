"""Count what a reader of this repository meets: `python3 -m tools.house [CHECKOUT ...]` prints a table, a column each.

Walks are static: from all functions of a file, along names that its imports resolve, into the project's other files. A
return is a pair of files, of which the first calls what was not yet read of the second, though that was opened before.
It leads up if the second file is one that the walk came through to get there.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from slurm_plugin.core.process.run import run

PRODUCT = ("slurm_plugin", "gpumemnet", "prolog", "epilog")
WORDS = [line.split("->")[0] for line in (Path(__file__).parent / "words.txt").read_text().splitlines()]
"""The private words that `make lint` refuses; here each counts, be it in prose or part of a name."""
_PRIVATE = re.compile(rf"(?<![^\W_])(?:{'|'.join(WORDS)}|put[ _]back|without us)(?![^\W_])", re.IGNORECASE)
_KEPT = re.compile(
    r"[\"'`]nobod[y][\"'`]|nobod[y][:@]|\bdata car[d]\b|DATA_CAR[D]|`tests/[^`]*`", re.IGNORECASE
)
"""Names: a Unix user, a description of data, a test."""
WALKS = {
    "a submission (1.2)": ("slurm_plugin/radd/service.py",),
    "a job on its node (1.3)": ("prolog/hook.py",),
    "out of memory (1.4)": ("epilog/hook.py",),
    "a text to MiB (1.5)": ("gpumemnet/profile/build.py",),
    "`rad-estimate -- python train.py` (1.6)": (
        "gpumemnet/cli/rad_estimate.py",
        "slurm_plugin/dry*run.py",
    ),
}
"""Where each walk of a reader begins: patterns, since files may have had other names."""
FOLDERS = ("slurm_plugin", "slurm_plugin/core", "slurm_plugin/admin", "gpumemnet")
_KEYS = """
from slurm_plugin.admin.schema import schema
def keys(table):
    for name, made in table["properties"].items():
        if name == "partition": yield from keys(made["additionalProperties"])
        elif "properties" not in made: yield name
        elif name != "partition_defaults": yield from keys(made)
print(len(list(keys(schema()))))
"""


@dataclass(frozen=True)
class Module:
    """A Python file, parsed.

    Attributes:
        defined: Its functions and classes by name.
        imported: Names that it imports from the project: the file, and the name there or "" for the file itself.
    """

    defined: dict[str, ast.AST] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)


class House:
    """A checkout, as far as git tracks it."""

    def __init__(self, root: Path) -> None:
        """Read a checkout."""
        self.root = root
        self.files = run(["git", "-C", str(root), "ls-files", "-z"], timeout_s=60).split("\0")[:-1]
        self.module = cache(self._module)

    def counts(self) -> Iterator[tuple[str, str]]:
        """Yield title and value of every figure."""
        yield "files tracked", f"{len(self.files):,}"
        yield (
            "bytes tracked, MB",
            f"{sum((self.root / name).lstat().st_size for name in self.files) / 1e6:.1f}",
        )
        reports = [name for name in self.files if name.startswith("docs/measurements/")]
        manual = [
            name
            for name in self.files
            if name.endswith(".md") and (name.startswith("docs/") or "/" not in name) and name not in reports
        ]
        yield "words of the manual", f"{sum(map(self._words, manual)):,}"
        longest = max(manual, key=self._words)
        yield "longest page, words", f"{self._words(longest):,} ({longest})"
        for name in ("README.md", "ARCHITECTURE.md", "docs/user.md"):
            yield f"words of {name}", f"{self._words(name):,}"
        code = [name for name in self.files if name.endswith((".py", ".lua"))]
        product = [name for name in code if name.startswith(tuple(f"{each}/" for each in PRODUCT))]
        yield "lines of product (Python, Lua)", f"{sum(map(self._lines, product)):,}"
        for folder in ("bench", "lab", "tools", "tests"):
            yield f"lines of {folder}", f"{sum(self._lines(n) for n in code if n.startswith(f'{folder}/')):,}"
        yield "private words, product", f"{sum(map(self._private, product)):,}"
        around = [name for name in code if name.startswith(("bench/", "lab/", "tools/"))]
        yield "private words, bench, lab and tools", f"{sum(map(self._private, around)):,}"
        yield "private words, tests", f"{sum(self._private(n) for n in code if n.startswith('tests/')):,}"
        yield "private words, manual", f"{sum(map(self._private, manual)):,}"
        yield "keys of rad.toml", self._keys()
        sizes = self._folder_sizes(code)
        largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        yield "largest folders of code, files", ", ".join(f"{name} {sizes[name]}" for name in largest)
        yield "folders of more than 20 files of code", str(sum(size > 20 for size in sizes.values()))
        for folder in FOLDERS:
            nodes, arrows, levels, upward = self._levels(folder)
            yield (
                f"{folder}: files and folders, arrows, levels, cyclic",
                f"{nodes}, {arrows}, {levels}, {upward}",
            )
        for title, entries in WALKS.items():
            walk = Walk(self)
            for entry in entries:
                for name in fnmatch.filter(self.files, entry):
                    walk.file(name)
            yield (
                f"walk, {title}: files, folders, returns, of these up",
                (
                    f"{len(walk.met)}, {len({os.path.dirname(name) for name in walk.met})},"
                    f" {len(walk.returns)}, {sum(walk.returns.values())}"
                ),
            )

    def _text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    def _words(self, name: str) -> int:
        return len(self._text(name).split())

    def _lines(self, name: str) -> int:
        return len(self._text(name).splitlines())

    def _private(self, name: str) -> int:
        return len(_PRIVATE.findall(_KEPT.sub("", self._text(name))))

    def _keys(self) -> str:
        env = {**os.environ, "PYTHONPATH": str(self.root), "PYTHONSAFEPATH": "1"}
        return run([sys.executable, "-c", _KEYS], timeout_s=60, env=env).strip()

    def _folder_sizes(self, code: list[str]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for name in code:
            if not name.startswith("tests/") and not name.endswith("__init__.py"):
                sizes[os.path.dirname(name)] = sizes.get(os.path.dirname(name), 0) + 1
        return sizes

    def _levels(self, folder: str) -> tuple[int, int, int, int]:
        """Return the number of a folder's files and folders, of imports between them, of levels, and of cyclic ones."""
        prefix = f"{folder}/"

        def part(name: str) -> str:
            return name.removeprefix(prefix).partition("/")[0]

        arrows: dict[str, set[str]] = {}
        for name in self.files:
            if name.startswith(prefix) and name.endswith(".py") and part(name) != "__init__.py":
                needed = arrows.setdefault(part(name), set())
                targets = {file for file, _ in self.module(name).imported.values() if file.startswith(prefix)}
                needed |= {part(file) for file in targets} - {part(name), "__init__.py"}
        levels, left = 0, dict(arrows)
        while left and (ground := {name for name, needed in left.items() if not needed & left.keys()}):
            levels, left = levels + 1, {name: needed for name, needed in left.items() if name not in ground}
        return len(arrows), sum(map(len, arrows.values())), levels, len(left)

    def _module(self, name: str) -> Module:
        found = Module()
        for node in ast.walk(ast.parse(self._text(name))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    at = self._file(f"{node.module}.{alias.name}")
                    target = (at, "") if at else (self._file(node.module), alias.name)
                    if target[0]:
                        found.imported[alias.asname or alias.name] = target
        for child in ast.parse(self._text(name)).body:
            if isinstance(child, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                found.defined[child.name] = child
        return found

    def _file(self, module: str) -> str:
        path = module.replace(".", "/")
        names = (f"{path}.py", f"{path}/__init__.py")
        return next((name for name in names if name in self._names()), "")

    @cache  # noqa: B019 - a house lives as long as the program
    def _names(self) -> frozenset[str]:
        return frozenset(self.files)


class Walk:
    """What a reader opens who follows the calls from some files on.

    Attributes:
        met: Files of the product, in the order in which they are opened.
        returns: Pairs of files, and whether the second is still open.
    """

    def __init__(self, house: House) -> None:
        """Begin nowhere."""
        self.met: dict[str, None] = {}
        self.returns: dict[tuple[str, str], bool] = {}
        self._house, self._seen, self._open = house, set[tuple[str, str]](), list[str]()

    def file(self, name: str) -> None:
        """Follow all functions of a file."""
        for defined in self._house.module(name).defined:
            self._enter(name, defined)

    def _enter(self, name: str, defined: str) -> None:
        module = self._house.module(name)
        if defined in module.imported and defined not in module.defined:
            self._enter(*module.imported[defined])
        if defined not in module.defined or not name.startswith(tuple(f"{each}/" for each in PRODUCT)):
            return
        if (name, defined) in self._seen:
            return
        self._seen.add((name, defined))
        if self._open and name != self._open[-1] and name in self.met:
            self.returns[self._open[-1], name] = name in self._open
        self.met[name] = None
        self._open.append(name)
        for node in ast.walk(module.defined[defined]):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                target, inner = module.imported.get(node.value.id, ("", "")), node.attr
                if target[0] and not target[1]:
                    self._enter(target[0], inner)
            elif isinstance(node, ast.Name):
                if node.id in module.defined:
                    self._enter(name, node.id)
                elif module.imported.get(node.id, ("", ""))[1]:
                    self._enter(*module.imported[node.id])
        self._open.pop()


def table(roots: list[Path]) -> str:
    """Return the figures of checkouts as a table, a column for each."""
    columns = [dict(House(root).counts()) for root in roots]
    rows = [f"| {title} | {' | '.join(column[title] for column in columns)} |" for title in columns[0]]
    return "\n".join(
        ["| | " + " | ".join(root.name for root in roots) + " |", "|---" * (len(roots) + 1) + "|", *rows]
    )


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    print(table([Path(each).resolve() for each in sys.argv[1:]] or [Path.cwd()]))
