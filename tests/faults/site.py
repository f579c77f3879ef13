"""Where trials run, and where their rows go."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lab.cluster import Cluster
from lab.install import why_no_slurm
from lab.jobs import Jobs
from lab.load import equal_nodes
from lab.place import ClusterSpec, NodeSpec, Place, home_of
from slurm_plugin.core.process.run import run
from tests.timing import within

CHECKOUT = Path(__file__).resolve().parents[2]


RUN = round(time.time())
"""Which session a row comes from."""
_NUMBERS = itertools.count(1)


def out_path() -> Path:
    """Return the file that rows are added to."""
    return Path(os.environ.get("RAD_FAULTS_OUT", home_of(CHECKOUT)[0] / "faults.jsonl"))


@cache
def slurm_version() -> str:
    """Return the version of the Slurm that is tried."""
    match = re.search(r"\d+\.\d+(\.\d+)?", run(["slurmctld", "-V"], timeout_s=10))
    return match[0] if match else "?"


@cache
def commit() -> str:
    """Return the commit that is tried; "" where the checkout has no history."""
    git = ["git", "-c", f"safe.directory={CHECKOUT}", "-C", str(CHECKOUT), "log", "-1", "--format=%h"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def trial_place(name: str) -> Place:
    """Return a fresh place for clusters of this session, after what killed sessions left is gone."""
    reason = why_no_slurm()
    assert reason is None, reason
    home, _ = home_of(CHECKOUT)
    assert (home / "venv" / "installed").exists(), "the hooks run in .rad/venv: run `make setup` first"
    for old in home.glob("fault-*"):
        number = old.name.split("-")[1]
        if not Path("/proc", number).exists() or int(number) == os.getpid():  # in a PID namespace all are 1
            for root in (old, *old.iterdir()):
                Cluster(Place(root=root, venv=home / "venv")).down()
            remove(old)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # so that what was started is stopped on the way out
    return Place(root=home / f"fault-{os.getpid()}-{name}", venv=home / "venv")


def trial_cluster(name: str, *nodes: NodeSpec) -> Iterator[Cluster]:
    """Run a cluster, by default of one node with four GPUs, and remove what it leaves."""
    place = trial_place(name)
    running = Cluster(place)
    try:
        running.up(ClusterSpec(nodes=nodes or equal_nodes(1), answer_s=within(0.1)))
        yield running
    finally:
        running.down()
        remove(place.root)


def jobs_of(cluster: Cluster) -> Jobs:
    """Return jobs whose folder is new, has the examples in it, and may be written to by any user."""
    folder = cluster.place.root / "work" / str(next(_NUMBERS))
    shutil.copytree(CHECKOUT / "examples", folder)
    folder.chmod(0o1777)
    return Jobs(cluster, folder)


def allocations_of(cluster: Cluster, job: int) -> list[object]:
    return [row for row in cluster.allocations("n0") if row["job_id"] == job]


def remove(folder: Path) -> None:
    """Take a folder away, however deep the trees are that a trial has left in it."""
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=False)
