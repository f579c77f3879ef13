"""Fault injection on a real Slurm: `python -Im pytest tests/faults -m cluster`.

RAD_FAULTS=long runs every fault with 30 jobs; the default, short, runs a few with 10. Rows for docs/reliability.md
are added to RAD_FAULTS_OUT (default .rad/faults.jsonl), which bench/reliability.py renders.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.trial import JOBS, SHORT, Trials

from lab.cluster import Cluster
from lab.install import why_no_slurm
from lab.place import Place, home_of

CHECKOUT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def trials() -> Iterator[Trials]:
    reason = why_no_slurm()
    assert reason is None, reason
    home, _ = home_of(CHECKOUT)
    assert (home / "venv" / "installed").exists(), "the hooks run in .rad/venv: run `make setup` first"
    for old in home.glob("fault-*"):
        if not Path("/proc", old.name.split("-")[1]).exists():
            for root in old.iterdir():
                Cluster(Place(root=root, venv=home / "venv")).down()
            shutil.rmtree(old, ignore_errors=True)
    place = Place(root=home / f"fault-{os.getpid()}", venv=home / "venv")
    place.root.mkdir(parents=True)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # so that what was started is stopped on the way out
    jobs = int(os.environ.get("RAD_FAULTS_JOBS", JOBS[os.environ.get("RAD_FAULTS", SHORT)]))
    yield Trials(place, jobs=jobs, out=Path(os.environ.get("RAD_FAULTS_OUT", home / "faults.jsonl")))
    shutil.rmtree(place.root, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the long form what is marked `slow`."""
    if os.environ.get("RAD_FAULTS", SHORT) != SHORT:
        return
    later = pytest.mark.skip(reason="only with RAD_FAULTS=long")
    for item in items:
        if "faults" in item.path.parts and item.get_closest_marker("slow"):
            item.add_marker(later)
