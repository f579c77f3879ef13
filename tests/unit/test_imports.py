"""Importing does nothing and stays cheap: what a hook or a login node loads, measured in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from paths import CHECKOUT

EXAMPLES = CHECKOUT / "examples" / "models"
HEAVY = {
    "torch",
    "numpy",
    "sklearn",
    "pandas",
    "scipy",
    "lightgbm",
    "matplotlib",
    "prometheus_client",
}
HOOKS = ("prolog.hook", "prolog.task_prolog", "epilog.hook")
RUNTIME = (
    "gpumemnet.cli",
    "slurm_plugin.login.cli_filter",
    "slurm_plugin.radd.__main__",
    "slurm_plugin.monitor.daemon",
    "slurm_plugin.admin.cli",
)


def modules_after_import(module: str) -> set[str]:
    """Return the top-level modules loaded by importing one module, having checked that it stays silent."""
    code = f"import sys; import {module}; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 1, f"{module} prints on import"
    return set(lines[0].split())


NOT_FOR_AN_ORDINARY_JOB = {"subprocess", "socket", "logging", "difflib", "asyncio", "email", "http"}
"""What only a put-back, a recovery or an error needs."""


@pytest.mark.parametrize("module", HOOKS)
def test_hooks_load_little_and_only_of_the_standard_library(module: str) -> None:
    loaded = modules_after_import(module)
    assert loaded & (HEAVY | NOT_FOR_AN_ORDINARY_JOB | {"click", "pynvml", "gpumemnet"}) == set()


@pytest.mark.parametrize("module", ["prolog.__main__", "epilog.__main__"])
def test_what_keeps_a_hooks_time_is_small_enough_to_fork_at_once(module: str) -> None:
    heavy = {"re", "enum", "typing", "dataclasses", "json", "pathlib", "signal", "tomllib"}
    assert modules_after_import(module) & heavy == set()


@pytest.mark.parametrize("module", RUNTIME)
def test_programs_start_without_heavy_packages(module: str) -> None:
    assert modules_after_import(module) & HEAVY == set()


def test_a_batch_jobs_submission_loads_neither_what_estimates_nor_what_decides() -> None:
    code = "import sys, slurm_plugin.login.cli_filter, gpumemnet.profile.build; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    unwanted = (
        "gpumemnet.estimators",
        "gpumemnet.estimate",
        "slurm_plugin.core.booking.decide",
        "slurm_plugin.core.booking.request",
    )
    assert [name for name in done.stdout.split() if name.startswith(unwanted)] == []


def test_an_estimate_from_a_text_loads_few_modules_and_none_that_is_slow(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_bytes((EXAMPLES / "resnet50_torchsummary.txt").read_bytes())
    code = (
        "import sys; from slurm_plugin.rad_estimate import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-I", "-c", code, str(path), "--batch-size", "8", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    slow = {
        "click",
        "importlib.metadata",
        "email",
        "logging",
        "socket",
        "shutil",
        "html",
        "subprocess",
        "uuid",
    }
    clusters = {name for name in loaded if name.startswith(("slurm_plugin.radd", "slurm_plugin.login"))}
    assert (loaded & (HEAVY | slow), clusters) == (set(), set())
    assert len([name for name in loaded if name.startswith(("gpumemnet", "slurm_plugin"))]) <= 115
