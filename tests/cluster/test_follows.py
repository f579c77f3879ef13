"""Job after job on a GPU that has space for one: each finds the memory of the one before it free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from tests.cluster.conftest import started

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.any_slurm("readings of a GPU by the Prolog; Slurm starts the jobs and no more"),
]

HERE = Path(__file__).resolve().parent
JOBS = 6


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    """A node with one GPU of 40 GiB."""
    own = replace(place, root=place.root.with_name(f"{place.root.name}-follows"))
    yield from started(own, ClusterSpec(nodes=(replace(NodeSpec(name="n0"), gpu_mib=(41_600,)),)))


def test_who_comes_after_a_job_that_has_just_ended_is_not_requeued(jobs: Jobs, cluster: Cluster) -> None:
    """rad-monitor samples once a second, and its last sample shows who has ended since."""
    # Each takes its memory, is seen with it, and ends with it.
    command = f"timeout {{}} python3 {HERE / 'grower.py'} {jobs.folder} {{}} 28000 || true"
    found = []
    for number in range(JOBS):
        (jobs.folder / f"grow.{number}").touch()
        answer = jobs.submit(
            "--gpus=1", "--comment=rad:memory=30G", "--wrap", command.format(2.0 + number / JOBS, number)
        )
        assert answer.job_id is not None, answer.messages
        found.append(answer.job_id)
    done = [jobs.wait(job, "COMPLETED", timeout_s=60) for job in found]
    assert [job["Restarts"] for job in done] == ["0"] * JOBS
