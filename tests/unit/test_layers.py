"""Imports point downward: the architecture's folder table, checked on the code itself."""

from __future__ import annotations

import ast
import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from house import lines_of_code  # noqa: E402

from slurm_plugin.core.shell import run  # noqa: E402

PACKAGES = ("slurm_plugin", "gpumemnet", "prolog", "epilog")

_WORDS = tuple(f"gpumemnet.{name}" for name in ("errors", "names", "records", "units", "training"))

# Which of the project's own modules a folder may import; the longest matching entry decides.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "slurm_plugin.core": ("slurm_plugin.core",),
    "slurm_plugin.monitor": ("slurm_plugin.core", "slurm_plugin.monitor"),
    "slurm_plugin.monitor.attribution": (
        "slurm_plugin.core",
        "slurm_plugin.monitor",
        "slurm_plugin.slurm.processes",
    ),
    "slurm_plugin.monitor.daemon": (
        "slurm_plugin.core",
        "slurm_plugin.monitor",
        "slurm_plugin.guard",
        "slurm_plugin.node",
    ),
    "slurm_plugin.monitor.sweeper": ("slurm_plugin.core", "slurm_plugin.node"),
    "slurm_plugin.node": ("slurm_plugin.core", "slurm_plugin.slurm", "slurm_plugin.node"),
    "slurm_plugin.guard": (
        "slurm_plugin.core",
        "slurm_plugin.monitor",
        "slurm_plugin.slurm",
        "slurm_plugin.mps",
        "slurm_plugin.guard",
    ),
    "slurm_plugin.slurm": ("slurm_plugin.core", "slurm_plugin.slurm"),
    "slurm_plugin.mps": ("slurm_plugin.core", "slurm_plugin.mps"),
    "slurm_plugin.said": ("slurm_plugin.core", "gpumemnet"),
    "slurm_plugin.estimate": ("slurm_plugin.core", "slurm_plugin.said", "gpumemnet"),
    "slurm_plugin.stamp": (
        "slurm_plugin.core",
        "slurm_plugin.said",
        "slurm_plugin.interactive",
        "slurm_plugin.slurm.commands",
        "slurm_plugin.slurm.conf_files",
        "slurm_plugin.slurm.versions",
    ),
    "slurm_plugin.interactive": (
        "slurm_plugin.core",
        "slurm_plugin.said",
        "slurm_plugin.estimate",
        "slurm_plugin.slurm.job_desc",
    ),
    "slurm_plugin.dryrun": (
        "slurm_plugin.core",
        "slurm_plugin.slurm",
        "slurm_plugin.said",
        "slurm_plugin.estimate",
        "slurm_plugin.radd",
        "slurm_plugin.stamp",
        "gpumemnet.cli",
        "gpumemnet.gpus",
        "gpumemnet.errors",
    ),
    "slurm_plugin.radd": (
        "slurm_plugin.core",
        "slurm_plugin.slurm",
        "slurm_plugin.said",
        "slurm_plugin.estimate",
        "slurm_plugin.radd",
    ),
    "slurm_plugin.admin": ("slurm_plugin", "gpumemnet"),
    **dict.fromkeys(_WORDS, ("gpumemnet.errors", "gpumemnet.names", "gpumemnet.records")),
    "gpumemnet.rules": (*_WORDS, "gpumemnet.rules"),
    "gpumemnet.gpus": (*_WORDS, "gpumemnet.rules"),
    "gpumemnet.directives": (*_WORDS, "gpumemnet.directives"),
    "gpumemnet.texts": (*_WORDS, "gpumemnet.texts"),
    "gpumemnet.shapes": (*_WORDS, "gpumemnet.texts", "gpumemnet.shapes"),
    "gpumemnet.hidden": (*_WORDS, "gpumemnet.texts", "gpumemnet.hidden"),
    "gpumemnet.cudnn": (*_WORDS, "gpumemnet.rules", "gpumemnet.cudnn"),
    "gpumemnet.allocator": (*_WORDS, "gpumemnet.rules", "gpumemnet.allocator"),
    "gpumemnet.graph": (
        *_WORDS,
        "gpumemnet.texts",
        "gpumemnet.hidden",
        "gpumemnet.cudnn",
        "gpumemnet.graph",
    ),
    "gpumemnet.replay": (*_WORDS, "gpumemnet.graph.tape", "gpumemnet.allocator", "gpumemnet.replay"),
    "gpumemnet.saved": (
        *_WORDS,
        "gpumemnet.profile.record",
        "gpumemnet.trace",
        "gpumemnet.saved",
    ),
    "gpumemnet.script": (*_WORDS, "gpumemnet.trace", "gpumemnet.saved", "gpumemnet.script"),
    "gpumemnet.profile": (
        *_WORDS,
        "gpumemnet.saved",
        "gpumemnet.texts",
        "gpumemnet.shapes",
        "gpumemnet.graph",
        "gpumemnet.replay",
        "gpumemnet.profile",
    ),
    "gpumemnet.profile.record": _WORDS,
    "gpumemnet.estimate": _WORDS,
    "gpumemnet.trace": (
        *_WORDS,
        "gpumemnet.rules",
        "gpumemnet.cudnn",
        "gpumemnet.allocator",
        "gpumemnet.trace",
    ),
    "gpumemnet.estimators": (
        *_WORDS,
        "gpumemnet.rules",
        "gpumemnet.gpus",
        "gpumemnet.estimate",
        "gpumemnet.profile.record",
        "gpumemnet.hidden.scale",
        "gpumemnet.texts",
        "gpumemnet.trace",
        "gpumemnet.estimators",
    ),
    "gpumemnet.cli": (
        *_WORDS,
        "gpumemnet.gpus",
        "gpumemnet.estimate",
        "gpumemnet.directives",
        "gpumemnet.texts",
        "gpumemnet.profile",
        "gpumemnet.replay.timeline",
        "gpumemnet.saved",
        "gpumemnet.script",
        "gpumemnet.estimators",
        "gpumemnet.trace",
        "gpumemnet.cli",
    ),
    "gpumemnet.calibration": (),
    "gpumemnet.fit": (*_WORDS, "gpumemnet.rules", "gpumemnet.gpus", "gpumemnet.cudnn", "gpumemnet.fit"),
    "gpumemnet.dataset": (*_WORDS, "gpumemnet.dataset"),
    "gpumemnet.train": (
        *_WORDS,
        "gpumemnet.gpus",
        "gpumemnet.texts",
        "gpumemnet.profile",
        "gpumemnet.estimators",
        "gpumemnet.dataset",
        "gpumemnet.train",
    ),
    "gpumemnet.evaluate": (
        *_WORDS,
        "gpumemnet.gpus",
        "gpumemnet.estimate",
        "gpumemnet.texts",
        "gpumemnet.profile",
        "gpumemnet.allocator",
        "gpumemnet.estimators",
        "gpumemnet.trace",
        "gpumemnet.dataset",
        "gpumemnet.train",
        "gpumemnet.evaluate",
    ),
    "prolog": (
        "slurm_plugin.core",
        "slurm_plugin.monitor",
        "slurm_plugin.slurm",
        "slurm_plugin.mps",
        "slurm_plugin.node",
        "prolog",
    ),
    "epilog": (
        "slurm_plugin.core",
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
        "slurm_plugin.monitor.nvml",
        "slurm_plugin.monitor.nvml_binding",
        "gpumemnet.dataset",
        "gpumemnet.calibration",
    ),
    "pyslurm": ("slurm_plugin.slurm.pyslurm",),
    "subprocess": (
        "slurm_plugin.core.shell",
        "gpumemnet.script.start",
        "gpumemnet.dataset",
        "gpumemnet.calibration",
    ),
    "torch": (
        "gpumemnet.saved",
        "gpumemnet.script",
        "gpumemnet.trace",
        "gpumemnet.dataset",
        "gpumemnet.estimators",
        "gpumemnet.train",
        "gpumemnet.evaluate",
        "gpumemnet.calibration",
    ),
    "sklearn": ("gpumemnet.estimators", "gpumemnet.train", "gpumemnet.evaluate"),
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
    "slurm_plugin.admin.setup_commands": {"scontrol"},  # asks whether it is there
    "slurm_plugin.stamp": {"sbatch"},  # tells which command the user typed
    "gpumemnet.cli.report_json": {"sbatch"},  # a key of what is printed
}
STANDARD_LIBRARY_ONLY = ("slurm_plugin.core", "prolog", "epilog")


def module_name(path: Path) -> str:
    """Return the dotted name of a source file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    """Return every module that a file imports, at any depth of the code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(module: str, prefixes: tuple[str, ...]) -> bool:
    """Return whether a dotted name lies in one of the packages."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports_point_downward(path: Path) -> None:
    module = module_name(path)
    layer = max((name for name in MAY_IMPORT if within(module, (name,))), key=len, default=None)
    if layer is None:
        assert path.name == "__init__.py", f"{module} has no place in the layers"
        return
    own = {name for name in imports_of(path) if within(name, PACKAGES)}
    assert {name for name in own if not within(name, MAY_IMPORT[layer])} == set()


ALL = [*SOURCES, *sorted((ROOT / "lab").rglob("*.py"))]


def needs_of(module: str, path: Path, known: set[str]) -> set[str]:
    """Return the project's modules that a file imports, inside functions and for types alone included."""
    found = set()
    for name in imports_of(path):
        while name not in known and "." in name:
            name = name.rpartition(".")[0]
        found |= {name} & known
    return found - {module}


MODULES = {module_name(path): path for path in ALL}
NEEDS = {module: needs_of(module, path, set(MODULES)) for module, path in MODULES.items()}


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
        TopologicalSorter(NEEDS).prepare()
    except CycleError as exc:
        pytest.fail(" -> ".join(exc.args[1]))


def test_no_folder_of_gpumemnet_needs_itself_in_the_end() -> None:
    """A folder's records may be needed below it: `graph.tape` and `profile.record` count as folders of their own."""
    apart = ("gpumemnet.graph.tape", "gpumemnet.profile.record")

    def folder(module: str) -> str:
        return module if module in apart else ".".join(module.split(".")[:2])

    between: dict[str, set[str]] = {}
    for module, needed in NEEDS.items():
        if within(module, ("gpumemnet",)):
            here = between.setdefault(folder(module), set())
            here |= {folder(name) for name in needed} - {folder(module)}
    try:
        TopologicalSorter(between).prepare()
    except CycleError as exc:
        pytest.fail(" -> ".join(exc.args[1]))


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_one_place_meets_each_foreign_thing(path: Path) -> None:
    module = module_name(path)
    for foreign, places in SEAMS.items():
        if any(within(name, (foreign,)) for name in imports_of(path)):
            assert within(module, places), f"{module} imports {foreign}"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_one_package_alone_calls_slurm(path: Path) -> None:
    module = module_name(path)
    strings = {
        node.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = {text for text in strings if text.rpartition("/")[2] in SLURM_PROGRAMS}
    if not within(module, ("slurm_plugin.slurm",)):
        assert named <= NAMES_NO_PROGRAM.get(module, set())


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if within(module_name(p), STANDARD_LIBRARY_ONLY)], ids=module_name
)
def test_hooks_and_core_need_the_standard_library_alone(path: Path) -> None:
    foreign = {name.partition(".")[0] for name in imports_of(path)} - set(PACKAGES)
    older = (
        {"tomli"} if module_name(path) == "slurm_plugin.core.toml" else set()
    )  # Python 3.10 has no tomllib
    assert foreign - set(sys.stdlib_module_names) <= older


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


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_units_live_in_one_place(path: Path) -> None:
    if path.name == "units.py" or within(
        module_name(path), ("gpumemnet.dataset",)
    ):  # 1024 neurons are no KiB
        return
    allowed = {
        "slurm_plugin.core.wire": {1024},  # characters of a comment
        "slurm_plugin.core.timely_file": {1 << 20},  # units.py loads more than the file's readers may
        "slurm_plugin.core.partition_settings": {1024},  # MiB of a shard, a default in the unit of its name
        "gpumemnet.cli.told": {1024},  # likewise
        "gpumemnet.directives.values": {1024, 1 << 30},  # most GPUs of one job; the largest count
        "gpumemnet.cli.rad_estimate": {1 << 30},  # likewise
        "gpumemnet.calibration.measure_base": {
            1 << 20
        },  # a program of its own: it runs where the package is not installed
        "gpumemnet.calibration.measure_rules": {1 << 20},  # likewise
        "gpumemnet.calibration.measure_convolutions": {1024},  # channels
    }.get(module_name(path), set())
    assert units_in(ast.parse(path.read_text(encoding="utf-8"))) <= allowed


LONGER = {"gpumemnet.dataset.runner": 240}  # one state machine over child processes, which only a GPU tries
"""Files of more than 200 lines of code, and why."""


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_modules_stay_short(path: Path) -> None:
    """At most 200 lines of code, 300 with docstrings, which say what every argument is."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    assert lines_of_code(text) <= LONGER.get(module_name(path), 200)


def test_docstrings_and_comments_are_no_lines_of_code() -> None:
    assert lines_of_code('"""Says.\n\nMore."""\n\n# why\nX = 1\n"""What."""\nY = """a\nb"""\n') == 3
