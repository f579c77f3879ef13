"""The package is upgraded and rolled back while jobs run; and two versions work side by side.

The version before is RAD_PREVIOUS, a commit or tag of this repository; where it is not at hand there is nothing to try.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from faults.site import CHECKOUT, remove, trial_place
from faults.trial import Trials, nothing

from lab.cluster import Cluster
from lab.config import STAND_IN_LUA
from lab.install import install_package
from lab.jobs import Jobs
from lab.load import equal_nodes
from lab.place import PATIENT_S, ClusterSpec, home_of
from tests.timing import within
from tools.packages import PREFIX, deb

pytestmark = pytest.mark.cluster

PREVIOUS = os.environ.get("RAD_PREVIOUS", "013e8820")
HOME = home_of(CHECKOUT)[0]
BETWEEN_S = 5.0
ENDS_ON_REQUEST = "while [ ! -e end ]; do sleep 0.2; done"
PACKAGES = os.environ.get("RAD_PACKAGES", "")


@pytest.fixture(scope="module")
def previous() -> Path:
    """The sources of the version before."""
    folder = HOME / "previous"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    git = ["git", "-c", f"safe.directory={CHECKOUT}", "-C", str(CHECKOUT)]
    packed = subprocess.run([*git, "archive", PREVIOUS], capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"{PREVIOUS} is not in this checkout's history")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


@pytest.mark.slow
def test_upgrade_and_rollback_while_jobs_run(trials: Trials, previous: Path) -> None:
    venv = HOME / "venv-upgrade"
    install_package(previous, venv, environment=os.environ)

    def upgraded_and_back(cluster: Cluster) -> None:
        for checkout in (CHECKOUT, previous):
            install_package(checkout, venv, environment=os.environ)
            restart_all(cluster)
            cluster.clock.sleep(BETWEEN_S)

    trials.check("package upgraded, then rolled back, under load", upgraded_and_back, venv=venv)


@pytest.mark.slow
def test_hooks_of_the_version_before_next_to_a_new_radd(trials: Trials, previous: Path) -> None:
    old = HOME / "venv-previous"
    install_package(previous, old, environment=os.environ)

    def hooks_of_before(cluster: Cluster) -> None:
        for name in ("prolog", "task_prolog", "epilog"):
            hook = cluster.place.etc / f"{name}.sh"
            hook.write_text(hook.read_text().replace(str(cluster.place.venv), str(old)))

    trials.check("hooks of the version before, radd and shims of this one", nothing, before=hooks_of_before)


@pytest.fixture(scope="module")
def packages() -> Path:
    """The folder of two .debs, `before` and `now`, each made of its commit by its own scripts."""
    folder, python = HOME / "debs", HOME / "venv" / "bin" / "python"
    shutil.rmtree(folder, ignore_errors=True)
    for name, commit in (("before", PREVIOUS), ("now", "HEAD")):
        source = folder / "sources" / name
        git("clone", "-q", str(CHECKOUT), str(source))
        if git("-C", str(source), "checkout", "-q", commit, check=False):
            pytest.skip(f"{commit} is not in this checkout's history")
        deb(source, folder / "work", folder / name, python=python, environment=os.environ)
    return folder


@pytest.mark.parametrize("name", ["swapped", "purged"])
def test_packages_under_jobs(packages: Path, name: str) -> None:
    """Run the tests below where dpkg may install what it likes: on a copy of this machine."""
    test = f"{Path(__file__).relative_to(CHECKOUT)}::test_the_package_is_{name}_while_jobs_run"
    argv = [
        str(CHECKOUT / "lab" / "overlay.sh"),
        sys.executable,
        "-Im",
        "pytest",
        "-m",
        "cluster",
        "-rs",
        test,
    ]
    env = {**os.environ, "RAD_PACKAGES": str(packages)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=within(540))
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


below = pytest.mark.skipif(not PACKAGES, reason="dpkg installs for a whole machine: see the test above")


@below
def test_the_package_is_swapped_while_jobs_run(trials: Trials) -> None:
    """It is upgraded and rolled back: dpkg replaces each file below the running hooks and daemons."""
    dpkg("--install", package("before"))

    def upgraded_and_back(cluster: Cluster) -> None:
        for name in ("now", "before"):
            dpkg("--force-downgrade", "--install", package(name))
            restart_all(cluster)
            cluster.clock.sleep(BETWEEN_S)

    trials.check("a .deb upgraded, then rolled back, under load", upgraded_and_back, venv=PREFIX)


@below
def test_the_package_is_purged_while_jobs_run() -> None:
    """Its hooks and Lua stay where slurm.conf names them: a running job ends well, a later one runs as without RAD."""
    dpkg("--install", package("now"))
    place = replace(trial_place("purged"), venv=PREFIX)
    cluster = Cluster(place)
    try:
        cluster.up(ClusterSpec(nodes=equal_nodes(1), answer_s=PATIENT_S))
        folder = place.root / "work"
        folder.mkdir()
        folder.chmod(0o1777)
        jobs = Jobs(cluster, folder)
        held_jobs = [
            jobs.submit("--gpus=1", "--comment=rad:memory=4G", "--wrap", ENDS_ON_REQUEST) for _ in range(2)
        ]
        for job in held_jobs:
            assert "booked 4.0 GiB" in job.messages, job
            jobs.wait(job.job_id or 0, "RUNNING")
        for daemon in ("radd", "monitor-n0"):  # as its script does by systemd
            cluster.daemons.stop(daemon)
        dpkg("--purge", "rad-slurm")
        assert not PREFIX.exists()
        (folder / "end").touch()
        later = jobs.submit("--gpus=1", "--comment=rad:memory=4G", "--wrap", "test $CUDA_VISIBLE_DEVICES")
        for job in (*held_jobs, later):
            assert job.job_id is not None, job
            jobs.wait(job.job_id, "COMPLETED", timeout_s=60)
        cluster.wait("the node is idle", lambda: "idle" in cluster.slurm("sinfo", "-h", "-o", "%T"), 30)
    finally:
        cluster.down()
        remove(place.root)


def git(*argv: str, check: bool = True) -> int:
    env = {
        **os.environ,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    return subprocess.run(["git", *argv], env=env, capture_output=True, check=check).returncode


def package(name: str) -> str:
    (path,) = Path(PACKAGES, name).glob("*.deb")
    return str(path)


def dpkg(*argv: str) -> None:
    subprocess.run(["dpkg", *argv], check=True, capture_output=True, timeout=300)


def restart_all(cluster: Cluster) -> None:
    """Do what an admin does after an upgrade: copy the Lua files, restart the daemons."""
    place = cluster.place
    source = next(place.venv.glob("lib/python3*/site-packages/slurm_plugin/lua"))
    for path in source.glob("*.lua"):
        shutil.copy(path, place.etc if path.name in STAND_IN_LUA else place.etc / "rad")
    cluster.restart_radd()
    cluster.daemons.stop("monitor-n0")
    cluster.start_monitor(equal_nodes(1)[0])
