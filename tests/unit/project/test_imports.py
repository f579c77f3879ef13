"""Importing does nothing and stays cheap: what a hook or a login node loads, measured in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
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
    """Return the modules loaded by importing one module, having checked that it stays silent."""
    code = f"import sys; import {module}; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 1, f"{module} prints on import"
    return set(lines[0].split())


def within(loaded: set[str], packages: Iterable[str]) -> set[str]:
    """Return the modules that are or lie in one of the packages."""
    tops = set(packages)
    return {name for name in loaded if name in tops or name.partition(".")[0] in tops}


NOT_FOR_AN_ORDINARY_JOB = {"subprocess", "socket", "logging", "difflib", "asyncio", "email", "http"}
"""What only a put-back, a recovery or an error needs."""


@pytest.mark.parametrize("module", HOOKS)
def test_hooks_load_little_and_only_of_the_standard_library(module: str) -> None:
    loaded = modules_after_import(module)
    foreign = within(loaded, HEAVY | NOT_FOR_AN_ORDINARY_JOB | {"click", "pynvml", "gpumemnet"})
    assert foreign <= {"gpumemnet", "gpumemnet.records"}, "the records' maker alone"


@pytest.mark.parametrize("module", ["prolog.__main__", "epilog.__main__"])
def test_what_keeps_a_hooks_time_is_small_enough_to_fork_at_once(module: str) -> None:
    heavy = {"re", "enum", "typing", "dataclasses", "json", "pathlib", "signal", "tomllib"}
    assert within(modules_after_import(module), heavy) == set()


@pytest.mark.parametrize("module", RUNTIME)
def test_programs_start_without_heavy_packages(module: str) -> None:
    assert within(modules_after_import(module), HEAVY) == set()


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


SLOW = {
    *("click", "dataclasses", "inspect", "importlib.metadata", "importlib.resources", "email", "logging"),
    *(
        "traceback",
        "tokenize",
        "socket",
        "shutil",
        "tempfile",
        "zipfile",
        "html",
        "uuid",
        "textwrap",
        "difflib",
    ),
}
"""Each takes a millisecond and more, where an empty Python takes twelve."""
ESTIMATE = "from slurm_plugin.rad_estimate import main; main()"
FILTER = "import runpy; runpy.run_module('slurm_plugin.login.cli_filter', run_name='__main__')"
TYPED = '{"command":"sbatch","script":"job.sh","gpus":"1"}'
TOML = 'default_partition = "gpu"\n[partition.gpu]\ncollocate = true\ngpu_memory_mib = 40000\n'


@pytest.mark.parametrize(
    ("program", "words", "rad_toml", "unwanted", "own", "others"),
    [
        pytest.param(
            ESTIMATE, ("m.txt", "--batch-size", "8"), False, {"subprocess", "tomllib", "slurm_plugin.core.records"},
            116, 65, id="a text",
        ),
        pytest.param(
            FILTER, ("rad.toml", TYPED), True, {"subprocess", "slurm_plugin.radd", "gpumemnet.estimators"},
            113, 75, id="sbatch",
        ),
        pytest.param(ESTIMATE, ("job.sh",), True, {"slurm_plugin.slurm.commands"}, 183, 90, id="a job on a cluster"),
    ],
)  # fmt: skip
def test_a_start_loads_few_modules_and_none_that_is_slow(
    tmp_path: Path,
    program: str,
    words: tuple[str, ...],
    rad_toml: bool,
    unwanted: set[str],
    own: int,
    others: int,
) -> None:
    (tmp_path / "m.txt").write_bytes((EXAMPLES / "resnet50_torchsummary.txt").read_bytes())
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH --gpus=1\n#RAD model=m.txt batch_size=8\n")
    (tmp_path / "rad.toml").write_text(TOML)
    code = f"import sys\ntry: {program}\nfinally: print(*sys.modules, file=sys.stderr)"
    env = {"PATH": "/usr/bin:/bin", **({"RAD_CONFIG": str(tmp_path / "rad.toml")} if rad_toml else {})}
    command = [sys.executable, "-I", "-c", code, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "GiB" in done.stdout or "rad.profile" in done.stdout, "the whole way was gone"
    loaded = set(done.stderr.split())
    empty = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded -= set(empty.stdout.split())  # what the environment itself loads
    assert within(loaded, HEAVY) | (loaded & (SLOW | unwanted)) == set()
    project = within(loaded, {"gpumemnet", "slurm_plugin"})
    assert (len(project) <= own, len(loaded - project) <= others) == (True, True), (
        len(project),
        len(loaded - project),
    )
