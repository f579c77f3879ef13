"""Imports point downward: the architecture's folder table, checked on the code itself."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from slurm_plugin.core.process.run import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("slurm_plugin", "gpumemnet", "prolog", "epilog")

_WORDS = tuple(f"gpumemnet.{name}" for name in ("errors", "names", "records", "units", "training"))

_CORE = ("slurm_plugin.core", "gpumemnet.records")

# Which of the project's own modules a folder may import; the longest matching entry decides.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "slurm_plugin.core": _CORE,
    "slurm_plugin.monitor": (*_CORE, "slurm_plugin.monitor"),
    "slurm_plugin.monitor.attribution": (
        *_CORE,
        "slurm_plugin.monitor",
        "slurm_plugin.slurm.node.daemons",
        "slurm_plugin.slurm.node.processes",
    ),
    "slurm_plugin.monitor.daemon": (
        *_CORE,
        "slurm_plugin.monitor",
        "slurm_plugin.guard",
        "slurm_plugin.node",
    ),
    "slurm_plugin.monitor.reconciler": (*_CORE, "slurm_plugin.node"),
    "slurm_plugin.node": (*_CORE, "slurm_plugin.slurm", "slurm_plugin.node"),
    "slurm_plugin.guard": (
        *_CORE,
        "slurm_plugin.monitor",
        "slurm_plugin.slurm",
        "slurm_plugin.mps",
        "slurm_plugin.guard",
    ),
    "slurm_plugin.slurm": (*_CORE, "slurm_plugin.slurm"),
    "slurm_plugin.mps": (*_CORE, "slurm_plugin.mps"),
    "slurm_plugin.directives": (*_CORE, "gpumemnet"),
    "slurm_plugin.estimate": (*_CORE, "slurm_plugin.directives", "gpumemnet"),
    "slurm_plugin.login.cli_filter": (
        *_CORE,
        "slurm_plugin.directives",
        "slurm_plugin.login.interactive",
        "slurm_plugin.slurm.files.conf_files",
        "slurm_plugin.slurm.files.gpu_defaults",
        "slurm_plugin.slurm.files.installed",
        "slurm_plugin.slurm.versions",
    ),
    "slurm_plugin.login.interactive": (
        *_CORE,
        "slurm_plugin.directives",
        "slurm_plugin.estimate",
        "slurm_plugin.slurm.submission.job_desc",
    ),
    "slurm_plugin.dry_run": (
        *_CORE,
        "slurm_plugin.slurm",
        "slurm_plugin.directives",
        "slurm_plugin.estimate",
        "slurm_plugin.radd",
        "slurm_plugin.login.cli_filter",
        "gpumemnet.cli",
        "gpumemnet.gpus",
        "gpumemnet.errors",
    ),
    "slurm_plugin.rad_estimate": (
        *_CORE,
        "slurm_plugin.dry_run",
        "gpumemnet.cli",
        "gpumemnet.errors",
    ),
    "slurm_plugin.radd": (
        *_CORE,
        "slurm_plugin.slurm",
        "slurm_plugin.directives",
        "slurm_plugin.estimate",
        "slurm_plugin.radd",
    ),
    "slurm_plugin.admin": ("slurm_plugin", "gpumemnet"),
    "slurm_plugin.simulate": (
        *_CORE,
        "slurm_plugin.slurm",
        "slurm_plugin.radd",
        "slurm_plugin.guard.overruns",
        "slurm_plugin.simulate",
        "gpumemnet",
    ),
    **dict.fromkeys(_WORDS, ("gpumemnet.errors", "gpumemnet.names", "gpumemnet.records")),
    "gpumemnet.gpu_memory.rules": (*_WORDS, "gpumemnet.gpu_memory.rules"),
    "gpumemnet.gpus": (*_WORDS, "gpumemnet.gpu_memory.rules"),
    "gpumemnet.directives": (*_WORDS, "gpumemnet.directives"),
    "gpumemnet.summaries.texts": (*_WORDS, "gpumemnet.summaries.texts"),
    "gpumemnet.summaries.shapes": (*_WORDS, "gpumemnet.summaries.texts", "gpumemnet.summaries.shapes"),
    "gpumemnet.summaries.collapsed_blocks": (
        *_WORDS,
        "gpumemnet.summaries.texts",
        "gpumemnet.summaries.collapsed_blocks",
    ),
    "gpumemnet.gpu_memory.cudnn": (*_WORDS, "gpumemnet.gpu_memory.rules", "gpumemnet.gpu_memory.cudnn"),
    "gpumemnet.gpu_memory.allocator": (
        *_WORDS,
        "gpumemnet.gpu_memory.rules",
        "gpumemnet.gpu_memory.allocator",
    ),
    "gpumemnet.summaries.graph": (
        *_WORDS,
        "gpumemnet.summaries.texts",
        "gpumemnet.summaries.collapsed_blocks",
        "gpumemnet.gpu_memory.cudnn",
        "gpumemnet.summaries.graph",
    ),
    "gpumemnet.summaries.replay": (
        *_WORDS,
        "gpumemnet.summaries.graph.tape",
        "gpumemnet.gpu_memory.allocator",
        "gpumemnet.summaries.replay",
    ),
    "gpumemnet.tracing.saved": (
        *_WORDS,
        "gpumemnet.profile.record",
        "gpumemnet.tracing.trace",
        "gpumemnet.tracing.saved",
    ),
    "gpumemnet.tracing.script": (
        *_WORDS,
        "gpumemnet.tracing.trace",
        "gpumemnet.tracing.saved",
        "gpumemnet.tracing.script",
    ),
    "gpumemnet.profile": (
        *_WORDS,
        "gpumemnet.tracing.saved",
        "gpumemnet.summaries.texts",
        "gpumemnet.summaries.shapes",
        "gpumemnet.summaries.graph",
        "gpumemnet.summaries.replay",
        "gpumemnet.gpu_memory.allocator.timeline",
        "gpumemnet.profile",
    ),
    "gpumemnet.profile.record": _WORDS,
    "gpumemnet.estimate": _WORDS,
    "gpumemnet.tracing.trace": (
        *_WORDS,
        "gpumemnet.gpu_memory.rules",
        "gpumemnet.gpu_memory.cudnn",
        "gpumemnet.gpu_memory.allocator",
        "gpumemnet.tracing.trace",
    ),
    "gpumemnet.estimators": (
        *_WORDS,
        "gpumemnet.gpu_memory.rules",
        "gpumemnet.gpus",
        "gpumemnet.estimate",
        "gpumemnet.profile.record",
        "gpumemnet.summaries.collapsed_blocks.scale",
        "gpumemnet.summaries.texts",
        "gpumemnet.tracing.trace",
        "gpumemnet.estimators",
    ),
    "gpumemnet.cli": (
        *_WORDS,
        "gpumemnet.gpus",
        "gpumemnet.estimate",
        "gpumemnet.directives",
        "gpumemnet.summaries.texts",
        "gpumemnet.profile",
        "gpumemnet.gpu_memory.allocator.timeline",
        "gpumemnet.tracing.saved",
        "gpumemnet.tracing.script",
        "gpumemnet.estimators",
        "gpumemnet.tracing.trace",
        "gpumemnet.cli",
    ),
    "gpumemnet.calibration.measure": (),
    "gpumemnet.calibration.fit": (
        *_WORDS,
        "gpumemnet.gpu_memory.rules",
        "gpumemnet.gpus",
        "gpumemnet.gpu_memory.cudnn",
        "gpumemnet.calibration.fit",
    ),
    "gpumemnet.learning.dataset": (*_WORDS, "gpumemnet.learning.dataset"),
    "gpumemnet.learning.train": (
        *_WORDS,
        "gpumemnet.gpus",
        "gpumemnet.summaries.texts",
        "gpumemnet.profile",
        "gpumemnet.estimators",
        "gpumemnet.learning.dataset",
        "gpumemnet.learning.train",
    ),
    "gpumemnet.learning.evaluate": (
        *_WORDS,
        "gpumemnet.gpus",
        "gpumemnet.estimate",
        "gpumemnet.summaries.texts",
        "gpumemnet.profile",
        "gpumemnet.gpu_memory.allocator",
        "gpumemnet.estimators",
        "gpumemnet.tracing.trace",
        "gpumemnet.learning.dataset",
        "gpumemnet.learning.train",
        "gpumemnet.learning.evaluate",
    ),
    "prolog": (
        *_CORE,
        "slurm_plugin.monitor",
        "slurm_plugin.slurm",
        "slurm_plugin.mps",
        "slurm_plugin.node",
        "prolog",
    ),
    "epilog": (
        *_CORE,
        "slurm_plugin.monitor",
        "slurm_plugin.slurm",
        "slurm_plugin.mps",
        "slurm_plugin.guard",
        "slurm_plugin.node",
        "epilog",
    ),
}

# Foreign modules that only one place may meet.
SEAMS: dict[str, tuple[str, ...]] = {
    "pynvml": (
        "slurm_plugin.monitor.gpus.nvml",
        "slurm_plugin.monitor.gpus.nvml_binding",
        "gpumemnet.learning.dataset",
        "gpumemnet.calibration.measure",
    ),
    "pyslurm": ("slurm_plugin.slurm.pyslurm",),
    "subprocess": (
        "slurm_plugin.core.process.run",
        "gpumemnet.tracing.script.shield.shields",
        "gpumemnet.learning.dataset",
        "gpumemnet.calibration.measure",
    ),
    "torch": (
        "gpumemnet.tracing.saved",
        "gpumemnet.tracing.script",
        "gpumemnet.tracing.trace",
        "gpumemnet.learning.dataset",
        "gpumemnet.estimators",
        "gpumemnet.learning.train",
        "gpumemnet.learning.evaluate",
        "gpumemnet.calibration.measure",
    ),
    "sklearn": ("gpumemnet.estimators", "gpumemnet.learning.train", "gpumemnet.learning.evaluate"),
}
SLURM_PROGRAMS = {
    *(
        "sacct",
        "sacctmgr",
        "salloc",
        "sbatch",
        "scancel",
        "scontrol",
        "sdiag",
        "sinfo",
        "sprio",
        "squeue",
        "srun",
    ),
    *("sshare", "sstat", "strigger", "slurmctld", "slurmd", "slurmdbd", "slurmrestd"),
}
NAMES_NO_PROGRAM = {
    "slurm_plugin.admin.install.command": {"scontrol"},  # checks whether it is there
    "slurm_plugin.login.cli_filter": {"sbatch"},  # shows which command the user typed
    "gpumemnet.cli.report_json": {"sbatch"},  # a key of what is printed
    "gpumemnet.cli.plain_words": {"sbatch"},  # an option of rad-estimate
}
STANDARD_LIBRARY_ONLY = ("slurm_plugin.core", "prolog", "epilog")


def module_name(path: Path) -> str:
    """Return the dotted name of a source file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@dataclass(frozen=True)
class Source:
    """What the tests below ask of a source file, which is parsed once."""

    imports: frozenset[str]
    strings: frozenset[str]
    units: frozenset[int]
    classes: frozenset[str]
    lines_of_code: int


@cache
def source(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    strings = (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return Source(
        imports=frozenset(imports_in(tree, path)),
        strings=frozenset(strings),
        units=frozenset(units_in(tree)),
        classes=frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef)),
        lines_of_code=lines_of_code(text, tree),
    )


def imports_in(tree: ast.AST, path: Path) -> set[str]:
    """Return every module that a file imports, at any depth of the code."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(module: str, prefixes: tuple[str, ...]) -> bool:
    """Return whether a dotted name lies in one of the packages."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def faults(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the modules in which something was found, of all that were looked at."""
    assert len(found) >= LEAST_MODULES
    return {module: wrong for module, wrong in found.items() if wrong}


LEAST_MODULES = 100
"""A check of fewer modules looked in the wrong place."""
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def test_imports_point_downward() -> None:
    wrong, homeless = {}, set()
    for path in SOURCES:
        module = module_name(path)
        layer = max((name for name in MAY_IMPORT if within(module, (name,))), key=len, default=None)
        if layer is None:
            homeless |= set() if path.name == "__init__.py" else {module}
            continue
        own = {name for name in source(path).imports if within(name, PACKAGES)}
        wrong[module] = {name for name in own if not within(name, MAY_IMPORT[layer])}
    assert faults(wrong) == {}
    assert homeless == set(), "no place in the layers"


ALL = [*SOURCES, *sorted((ROOT / "lab").rglob("*.py")), *sorted((ROOT / "tools").rglob("*.py"))]


def needs_of(module: str, path: Path, known: set[str]) -> set[str]:
    """Return the project's modules that a file imports, inside functions and for types alone included."""
    found = set()
    for name in source(path).imports:
        while name not in known and "." in name:
            name = name.rpartition(".")[0]
        found |= {name} & known
    return found - {module}


MODULES = {module_name(path): path for path in ALL}


@cache
def needs() -> dict[str, set[str]]:
    """Return the project's modules that each module imports."""
    return {module: needs_of(module, path, set(MODULES)) for module, path in MODULES.items()}


def test_the_architecture_names_the_folders_that_are_there() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("an archive of the code does not tell which folders are the project's")
    tracked = [Path(name) for name in run(["git", "-C", str(ROOT), "ls-files"], timeout_s=30).splitlines()]
    there = {path.parts[0] for path in tracked if len(path.parts) > 1}
    there |= {
        f"slurm_plugin/{path.parts[1]}"
        for path in tracked
        if path.parts[0] == "slurm_plugin" and len(path.parts) > 2
    }
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("\n| folder |")[2].partition("\n\n")[0]
    named = {
        name for row in table.splitlines() for name in re.findall(r"`([\w./]+)/`", row.partition(" |")[0])
    }
    assert {name for name in named if not (ROOT / name).is_dir()} == set()
    assert {name for name in there if not any(f"{each}/".startswith(f"{name}/") for each in named)} == set()


def test_no_module_needs_itself_in_the_end() -> None:
    try:
        TopologicalSorter(needs()).prepare()
    except CycleError as exc:
        pytest.fail(" -> ".join(exc.args[1]))


HAVE_FOLDERS = {
    str(path.parent.parent.relative_to(ROOT)).replace("/", ".") for path in ROOT.glob("*/**/__init__.py")
}
RECORDS = ("gpumemnet.summaries.graph.tape", "gpumemnet.profile.record")
"""Records that are needed below their folder."""


def candidate_of(module: str) -> str:
    """Return the folder of a module; a file next to folders stands for itself."""
    folder = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    return module if module in RECORDS or folder in HAVE_FOLDERS else folder


@pytest.mark.parametrize("package", ["gpumemnet", "slurm_plugin.core", "slurm_plugin.admin"])
def test_folders_import_in_one_direction(package: str) -> None:
    between: dict[str, set[str]] = {}
    for module, needed in needs().items():
        if within(module, (package,)):
            here = between.setdefault(candidate_of(module), set())
            here |= {candidate_of(name) for name in needed if within(name, (package,))} - {
                candidate_of(module)
            }
    try:
        TopologicalSorter(between).prepare()
    except CycleError as exc:
        pytest.fail(" -> ".join(exc.args[1]))


def test_a_class_name_means_one_thing() -> None:
    defined: dict[str, set[str]] = {}
    paths = [*ALL, *(path for folder in ("bench", "examples") for path in (ROOT / folder).rglob("*.py"))]
    for path in paths:
        for name in source(path).classes:
            defined.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    assert len(defined) >= LEAST_MODULES
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}


def test_one_place_meets_each_foreign_thing() -> None:
    met = {
        module_name(path): {
            foreign
            for foreign, places in SEAMS.items()
            if any(within(name, (foreign,)) for name in source(path).imports)
            and not within(module_name(path), places)
        }
        for path in SOURCES
    }
    assert faults(met) == {}


def test_one_package_alone_calls_slurm() -> None:
    named = {
        module_name(path): {
            text for text in source(path).strings if text.rpartition("/")[2] in SLURM_PROGRAMS
        }
        - NAMES_NO_PROGRAM.get(module_name(path), set())
        for path in SOURCES
        if not within(module_name(path), ("slurm_plugin.slurm",))
    }
    assert faults(named) == {}


def test_hooks_and_core_need_the_standard_library_alone() -> None:
    foreign = {}
    for path in SOURCES:
        if within(module := module_name(path), STANDARD_LIBRARY_ONLY):
            older = {"tomli"} if module == "slurm_plugin.core.config.toml" else set()  # for Python 3.10
            tops = {name.partition(".")[0] for name in source(path).imports} - set(PACKAGES)
            foreign[module] = tops - set(sys.stdlib_module_names) - older
    assert faults(foreign) == {}


UNITS = {1024, 1024**2, 1024**3, 10**6, 10**9}


def units_in(tree: ast.AST) -> set[int]:
    """Return the byte units that some code spells out: 1024, 2**20, 4 << 20, 1e9."""
    found: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=int() | float() as number) if number in UNITS:
                found.add(int(number))
            case ast.BinOp(left=ast.Constant(value=2 | 1024), op=ast.Pow(), right=ast.Constant(value=power)):
                found |= {node.left.value**power} & UNITS
            case ast.BinOp(op=ast.LShift(), right=ast.Constant(value=10 | 20 | 30 as bits)):
                found.add(1 << bits)
    return found


@pytest.mark.parametrize("code", ["1024", "1024**2", "3 * 2**30", "4 << 20", "256 << 10", "1_000_000", "1e9"])
def test_a_unit_is_seen_however_it_is_spelled(code: str) -> None:
    assert units_in(ast.parse(code))


@pytest.mark.parametrize("code", ["1 << 16", "512", "True", "1 << 44", "2**31", "'1024'"])
def test_other_numbers_are_no_units(code: str) -> None:
    assert not units_in(ast.parse(code))


MAY_SPELL_UNITS: dict[str, set[int]] = {
    "slurm_plugin.core.comments.signed_comment": {1024},  # characters of a comment
    "slurm_plugin.core.config.text": {1 << 20},  # units.py loads more than the file's readers may
    "slurm_plugin.core.config.partition": {1024},  # MiB of a shard, a default in the unit of its name
    "gpumemnet.cli.reported": {1024},  # likewise
    "gpumemnet.directives.values": {1024, 1 << 30},  # most GPUs of one job; the largest count
    "gpumemnet.cli.rad_estimate": {1 << 30},  # likewise
    "gpumemnet.tracing.script.shield.listened": {1 << 30},  # the bit of calls by x32
    "gpumemnet.calibration.measure.base": {1 << 20},  # a program of its own: it runs without the package
    "gpumemnet.calibration.measure.rules": {1 << 20},  # likewise
    "gpumemnet.calibration.measure.convolutions": {1024},  # channels
}


def test_units_live_in_one_place() -> None:
    spelled = {}
    for path in SOURCES:
        module = module_name(path)
        if path.name != "units.py" and not within(module, ("gpumemnet.learning.dataset",)):  # 1024 neurons
            spelled[module] = {str(unit) for unit in source(path).units - MAY_SPELL_UNITS.get(module, set())}
    assert faults(spelled) == {}


def lines_of_code(text: str, tree: ast.AST) -> int:
    """Return how many lines of a source text hold code: no docstring, no string on its own, comment or empty line."""
    prose = {
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        number not in prose and line.strip() != "" and not line.lstrip().startswith("#")
        for number, line in enumerate(text.splitlines(), 1)
    )


def test_modules_stay_short() -> None:
    """At most 300 lines of code, 450 with docstrings, which say what every argument is."""
    lines = {module_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {module: count for module, count in lines.items() if count > 450} == {}
    code = {module_name(path): source(path).lines_of_code for path in SOURCES}
    assert {module: count for module, count in code.items() if count > 300} == {}


def test_docstrings_and_comments_are_no_lines_of_code() -> None:
    text = '"""Says.\n\nMore."""\n\n# why\nX = 1\n"""What."""\nY = """a\nb"""\n'
    assert lines_of_code(text, ast.parse(text)) == 3
