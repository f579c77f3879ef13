"""Figures of gpumemnet's house: files per folder, import cycles, lengths, and the way of a text to MiB.

    python bench/house.py              # this checkout beside BASELINE, the last commit before it was regrouped
    python bench/house.py HEAD~1       # beside another commit

The import graph counts every import statement, those inside functions and for types alone included. The way is what
runs, file by file, from the text of examples/models/resnet50_torchinfo.txt to an estimate: how many files are met, how
many of them are entered from another folder (what a reader opens who goes from room to room). Over all committed texts,
with checkpointing and without: how many calls between two files lead back, so that files call each other in a round.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from same_answers import BASELINE, CHECKOUT, committed, entry, worktree

TEXT = CHECKOUT / "examples" / "models" / "resnet50_torchinfo.txt"
LINES = 200
"""Files should not be longer."""
Graph = Mapping[str, set[str]]


def modules(root: Path) -> dict[str, Path]:
    """Return the source files of gpumemnet by module name."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((root / "gpumemnet").rglob("*.py"))
    }


def imports(found: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return which modules each module imports, wherever the statement stands."""
    graph: dict[str, set[str]] = {}
    for module, path in found.items():
        graph[module] = needed = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                while name not in found and "." in name:
                    name = name.rpartition(".")[0]
                if name in found and name != module:
                    needed.add(name)
    return graph


def rounds(graph: Graph) -> list[set[str]]:
    """Return the groups of nodes that reach each other."""

    @cache
    def reach(start: str) -> frozenset[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for name in graph.get(waiting.pop(), ()):
                if name not in seen:
                    seen.add(name)
                    waiting.append(name)
        return frozenset(seen)

    groups: list[set[str]] = []
    for node in graph:
        if node in reach(node) and not any(node in group for group in groups):
            groups.append({other for other in reach(node) if node in reach(other)})
    return groups


def longest(graph: Graph) -> int:
    """Return how many modules the longest chain of imports has; a round counts as one."""
    groups = rounds(graph)
    leader = {name: min(group) for group in groups for name in group}

    @cache
    def depth(node: str) -> int:
        members = next((group for group in groups if node in group), {node})
        below = {leader.get(name, name) for member in members for name in graph[member]} - {node}
        return 1 + max((depth(name) for name in below), default=0)

    return max(depth(leader.get(node, node)) for node in graph)


def way(texts: Iterable[str], error: type[Exception]) -> list[tuple[str, str]]:
    """Return which file calls which, from texts to estimates, in the package under test."""
    profile, estimate, setup = entry("profile_with_warnings"), entry("estimate"), entry("TrainingSetup")
    calls: dict[tuple[str, str], None] = {}
    mark = f"{os.sep}gpumemnet{os.sep}"

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or mark not in frame.f_code.co_filename or frame.f_code.co_name == "<module>":
            return
        caller = frame.f_back
        while caller is not None and mark not in caller.f_code.co_filename:
            caller = caller.f_back
        names = [
            each.f_code.co_filename.rpartition(mark)[2] if each is not None else ""
            for each in (caller, frame)
        ]
        calls[names[0], names[1]] = None

    for text, again in itertools.product(texts, (False, True)):
        run = setup(batch_size=8, seq_len=64, gradient_checkpointing=again)
        for watched in (False, True):  # at first what is loaded once is loaded
            forget()
            if watched:
                sys.setprofile(note)
            try:
                estimate(profile(text, run)[0])
            except error:
                pass
            finally:
                sys.setprofile(None)
    return list(calls)


def forget() -> None:
    """Empty what the package under test keeps of earlier answers."""
    for module in list(sys.modules.values()):
        for value in list(vars(module).values()) if module.__name__.startswith("gpumemnet") else ():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def figures(root: Path) -> dict[str, object]:
    """Return all figures of the checkout in a folder."""
    found = modules(root)
    graph = imports(found)
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in found.items()}
    per_folder = Counter(
        str(path.parent.relative_to(root)) for path in found.values() if path.name != "__init__.py"
    )
    fullest, most = per_folder.most_common(1)[0]
    groups = rounds(graph)
    code = [
        lines_of_code(path.read_text(encoding="utf-8"))
        for path in found.values()
        if path.name != "__init__.py"
    ]
    real = [count for name, count in lines.items() if found[name].name != "__init__.py"]
    command = [sys.executable, "-P", __file__, "--way"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{CHECKOUT / 'bench'}"},
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    calls, all_calls = json.loads(done.stdout)
    between = [(a, b) for a, b in all_calls if a and a != b]
    called: dict[str, set[str]] = {name: set() for pair in between for name in pair}
    for a, b in between:
        called[a].add(b)
    back = rounds(called)
    return {
        "files": len(real),
        "folders": len(per_folder),
        "most files in one folder": f"{most} ({fullest})",
        "imports between them": sum(map(len, graph.values())),
        "import cycles": len(groups),
        "files in the largest cycle": max(map(len, groups), default=0),
        "longest chain of imports": longest(graph),
        "median lines of a file": round(statistics.median(real)),
        "lines of the largest file": max(real),
        "median lines of code of a file": round(statistics.median(code)),
        "lines of code of the largest file": max(code),
        "text to MiB: files met": len({name for pair in calls for name in pair if name}),
        "text to MiB: files entered from another folder": len(entered(calls)),
        "any text to MiB: calls that lead back": sum(
            any(a in group and b in group for group in back) for a, b in between
        ),
    }


def entered(calls: Iterable[tuple[str, ...]]) -> set[str]:
    """Return the files that are called from another folder, or from outside."""
    return {b for a, b in calls if not a or os.path.dirname(a) != os.path.dirname(b)}


def lines_of_code(text: str) -> int:
    """Return how many lines of a source text hold code: no docstring, no string on its own, comment or empty line."""
    told = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        number not in told and line.strip() != "" and not line.lstrip().startswith("#")
        for number, line in enumerate(text.splitlines(), 1)
    )


def lengths(root: Path, packages: Iterable[str]) -> str:
    """Say how long the source files of some packages are.

    Args:
        root: The checkout.
        packages: Their folders.
    """
    texts = {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for package in packages
        for path in (root / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    said = []
    for what, count in (("lines", lambda text: len(text.splitlines())), ("lines of code", lines_of_code)):
        found = {name: count(text) for name, text in texts.items()}
        name, most = max(found.items(), key=lambda each: each[1])
        above = sum(number > LINES for number in found.values())
        middle = round(statistics.median(found.values()))
        said.append(f"median {middle} {what}, {above} of more than {LINES}, longest {name} ({most})")
    return "; ".join([f"{len(texts)} files", *said])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", nargs="?", default=BASELINE, help="the commit to compare with")
    parser.add_argument("--way", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        error = entry("GpuMemNetError")
        one = way([TEXT.read_text(encoding="utf-8")], error)
        print(json.dumps([one, way([text + "\n" for _, text in committed()], error)]))
        return
    with worktree(options.revision) as folder:
        was, now = figures(folder), figures(CHECKOUT)
    print(f"| gpumemnet | {options.revision} | now |\n|---|---|---|")
    for name in now:
        print(f"| {name} | {was[name]} | {now[name]} |")
    for packages in (("gpumemnet",), ("slurm_plugin", "prolog", "epilog")):
        print(f"\n{', '.join(packages)}: {lengths(CHECKOUT, packages)}")


if __name__ == "__main__":
    main()
