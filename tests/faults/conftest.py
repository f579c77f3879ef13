"""Fault injection on a real Slurm: `python -Im pytest tests/faults -m cluster`.

RAD_FAULTS=long runs every fault with 30 jobs; the default, short, runs a few with 10. Rows for
docs/measurements/2026-11-faults.md are added to RAD_FAULTS_OUT (default .rad/faults.jsonl), which
bench/faults/reliability.py renders. Two sessions at once need a checkout and a PID namespace each (`unshare -p -f -m
--mount-proc --kill-child`): reconciler and guard of one would take the jobs of the other for jobs of their own node.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from faults.site import commit, out_path, remove, slurm_version, trial_place
from faults.trial import JOBS, SHORT, Trials


@pytest.fixture(scope="session")
def trials() -> Iterator[Trials]:
    place = trial_place("trial")
    place.root.mkdir(parents=True)
    jobs = int(os.environ.get("RAD_FAULTS_JOBS", JOBS[os.environ.get("RAD_FAULTS", SHORT)]))
    yield Trials(place, jobs=jobs, out=out_path(), slurm=slurm_version(), commit=commit())
    remove(place.root)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the long form what is marked `slow`."""
    if os.environ.get("RAD_FAULTS", SHORT) != SHORT:
        return
    later = pytest.mark.skip(reason="only with RAD_FAULTS=long")
    for item in items:
        if "faults" in item.path.parts and item.get_closest_marker("slow"):
            item.add_marker(later)
