"""Imports point downward: the architecture's folder table, checked on the code itself."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("slurm_plugin", "gpumemnet", "prolog", "epilog")

# Which of the project's own modules a folder may import; the longest matching entry decides.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "slurm_plugin.core": ("slurm_plugin.core",),
    "slurm_plugin.monitor": ("slurm_plugin.core", "slurm_plugin.monitor"),
    "slurm_plugin.monitor.attribution": (
        "slurm_plugin.core",
        "slurm_plugin.monitor",
        "slurm_plugin.slurm.processes",
    ),
    "slurm_plugin.slurm": ("slurm_plugin.core", "slurm_plugin.slurm"),
    "slurm_plugin.mps": ("slurm_plugin.core", "slurm_plugin.mps"),
    "slurm_plugin.estimate": ("slurm_plugin.core", "gpumemnet"),
    "slurm_plugin.stamp": ("slurm_plugin.core", "slurm_plugin.estimate", "slurm_plugin.slurm.conf_files"),
    "slurm_plugin.radd": (
        "slurm_plugin.core",
        "slurm_plugin.slurm",
        "slurm_plugin.estimate",
        "slurm_plugin.radd",
    ),
    "slurm_plugin.admin": ("slurm_plugin", "gpumemnet"),
    "gpumemnet": ("gpumemnet",),
    "prolog": (
        "slurm_plugin.core",
        "slurm_plugin.monitor",
        "slurm_plugin.slurm",
        "slurm_plugin.mps",
        "prolog",
    ),
    "epilog": (
        "slurm_plugin.core",
        "slurm_plugin.monitor",
        "slurm_plugin.slurm",
        "slurm_plugin.mps",
        "epilog",
    ),
}

# Foreign modules that only one place may meet.
SEAMS: dict[str, tuple[str, ...]] = {
    "pynvml": ("slurm_plugin.monitor.nvml", "gpumemnet.dataset", "gpumemnet.calibrate"),
    "pyslurm": ("slurm_plugin.slurm.pyslurm",),
    "subprocess": ("slurm_plugin.core.shell", "gpumemnet.dataset", "gpumemnet.calibrate"),
    "torch": (
        "gpumemnet.trace",
        "gpumemnet.dataset",
        "gpumemnet.estimators",
        "gpumemnet.train",
        "gpumemnet.evaluate",
        "gpumemnet.calibrate",
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
NAMES_NO_PROGRAM = {"slurm_plugin.stamp": {"sbatch"}}  # tells which command the user typed
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
    assert foreign - set(sys.stdlib_module_names) == set()


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_units_live_in_one_place(path: Path) -> None:
    if path.name == "units.py" or within(
        module_name(path), ("gpumemnet.dataset",)
    ):  # 1024 neurons are no KiB
        return
    suspicious = {1024, 1024**2, 1024**3, 10**6, 10**9}
    numbers = {
        node.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and type(node.value) in (int, float)
    }
    allowed = {
        "slurm_plugin.core.wire": {1024},  # characters of a comment
        "slurm_plugin.core.config": {1024},  # MiB of a shard, a default in the unit of its name
        "gpumemnet.report": {1024},  # likewise
        "gpumemnet.directive_values": {1024},  # most GPUs of one job
    }.get(module_name(path), set())
    assert numbers & suspicious <= allowed


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_modules_stay_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
