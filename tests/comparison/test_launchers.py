"""Launchers submit and run what they do without RAD. They are installed by hand, as their newest versions come and go:

/usr/bin/python3 -m venv .rad/launchers
.rad/launchers/bin/pip install submitit dask-jobqueue snakemake snakemake-executor-plugin-slurm
"""

from __future__ import annotations

import shutil
import subprocess

import pytest
from comparison.catalogue import HERE
from comparison.clusters import VARIANTS, new_place, running
from comparison.runs import Target

from lab.place import home_of

HOME, _ = home_of(HERE.parents[1])
PROGRAMS = HOME / "launchers" / "bin"
SNAKEMAKE = (
    *("snakemake", "--executor=slurm", "--jobs=3", "--slurm-no-account", "--slurm-status-command=squeue"),
    *("--slurm-init-seconds-before-status-checks=2", "--seconds-between-status-checks=2", "--latency-wait=5"),
    *("--default-resources", "slurm_partition=gpu", "mem_mb=300", "runtime=5"),
)
COMMANDS = {
    "submitit": ("python3", "with_submitit.py"),
    "dask": ("python3", "with_dask.py"),
    "snakemake": SNAKEMAKE,
}
LIMIT_S = 150

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not PROGRAMS.exists(), reason="no launchers in .rad/launchers"),
]


def seen(target: Target, name: str) -> list[str]:
    """Run a launcher as a user, and return what its jobs saw."""
    folder = target.work / name
    shutil.copytree(HERE / "launchers", folder)
    for path in (target.work, folder):
        path.chmod(0o777)
    env = {
        **target.env,
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "REAL_SRUN": str(shutil.which("srun")),
        "PATH": f"{folder}:{PROGRAMS}:{target.env['PATH']}",
    }
    argv = ["runuser", "-u", target.user, "--", *COMMANDS[name]]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    files = [
        path.read_text() for path in map(folder.joinpath, ("by-gres", "by-gpu", "none")) if path.exists()
    ]
    return [line for line in (done.stdout + "".join(files)).splitlines() if " GPUs " in line]


def test_launchers_run_as_without_rad() -> None:
    found: list[dict[str, list[str]]] = []
    for rad in (False, True):
        with running(VARIANTS["rad"], new_place(HOME, "with" if rad else "without"), rad=rad) as target:
            found.append({name: seen(target, name) for name in COMMANDS})
    print(*(f"{name}: {line}" for name, lines in found[0].items() for line in lines), sep="\n")
    assert {name: len(lines) for name, lines in found[0].items()} == {
        "submitit": 5,
        "dask": 2,
        "snakemake": 3,
    }
    assert found[1] == found[0]
