"""The package is upgraded and rolled back while jobs run; and two versions work side by side.

The version before is RAD_PREVIOUS, a commit or tag of this repository; where it is not at hand there is nothing to try.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from faults.site import CHECKOUT
from faults.trial import Trials, nothing

from lab.cluster import Cluster
from lab.config import STAND_IN_LUA
from lab.install import install_package
from lab.load import equal_nodes
from lab.packages import PREFIX
from lab.place import home_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PREVIOUS = os.environ.get("RAD_PREVIOUS", "c438e73")
HOME = home_of(CHECKOUT)[0]
BETWEEN_S = 5.0
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


def test_upgrade_and_rollback_while_jobs_run(trials: Trials, previous: Path) -> None:
    venv = HOME / "venv-upgrade"
    install_package(previous, venv, environment=os.environ)

    def upgraded_and_back(cluster: Cluster) -> None:
        for checkout in (CHECKOUT, previous):
            install_package(checkout, venv, environment=os.environ)
            restart_all(cluster)
            cluster.clock.sleep(BETWEEN_S)

    trials.check("package upgraded, then rolled back, under load", upgraded_and_back, venv=venv)


def test_hooks_of_the_version_before_beside_a_new_radd(trials: Trials, previous: Path) -> None:
    old = HOME / "venv-previous"
    install_package(previous, old, environment=os.environ)

    def hooks_of_before(cluster: Cluster) -> None:
        for name in ("prolog", "task_prolog", "epilog"):
            hook = cluster.place.etc / f"{name}.sh"
            hook.write_text(hook.read_text().replace(str(cluster.place.venv), str(old)))

    trials.check("hooks of the version before, radd and shims of this one", nothing, before=hooks_of_before)


@pytest.mark.skipif(
    not PACKAGES, reason="RAD_PACKAGES names no folder with two .debs to install on this machine"
)
def test_a_package_is_upgraded_and_downgraded_while_jobs_run(trials: Trials) -> None:
    """Run it where packages may be installed: dpkg replaces each file below the running hooks and daemons."""
    older, newer = sorted(Path(PACKAGES).glob("*.deb"), key=version_of)
    dpkg("--install", str(older))

    def upgraded_and_back(cluster: Cluster) -> None:
        for package in (newer, older):
            dpkg("--force-downgrade", "--install", str(package))
            restart_all(cluster)
            cluster.clock.sleep(BETWEEN_S)

    try:
        trials.check("a .deb upgraded, then downgraded, under load", upgraded_and_back, venv=PREFIX)
    finally:
        dpkg("--purge", "rad-slurm")


def dpkg(*argv: str) -> None:
    subprocess.run(["dpkg", *argv], check=True, capture_output=True, timeout=300)


def version_of(package: Path) -> list[int]:
    """Return what orders the trial's packages: the one that was built has a version below 999."""
    argv = ["dpkg-deb", "--field", str(package), "Version"]
    text = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout
    return [int(text.strip() == "999")]


def restart_all(cluster: Cluster) -> None:
    """Do what an admin does after an upgrade: copy the Lua files, restart the daemons."""
    place = cluster.place
    source = next(place.venv.glob("lib/python3*/site-packages/slurm_plugin/lua"))
    for path in source.glob("*.lua"):
        shutil.copy(path, place.etc if path.name in STAND_IN_LUA else place.etc / "rad")
    cluster.restart_radd()
    cluster.daemons.stop("monitor-n0")
    cluster.start_monitor(equal_nodes(1)[0])
