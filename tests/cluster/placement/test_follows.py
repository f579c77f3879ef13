"""Job after job on a GPU that has space for one: each finds the memory of the one before it free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.files import rewrite
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from tests.cluster.conftest import started

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.any_slurm("readings of a GPU by the Prolog; Slurm starts the jobs and no more"),
]

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
JOBS = 6


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    """A node with one GPU of 40 GiB, whose Prolog waits for samples that come late."""
    spec = ClusterSpec(nodes=(replace(NodeSpec(name="n0"), gpu_mib=(41_600,)),))
    for cluster in started(place, spec, name="follows"):
        hook = cluster.place.etc / "prolog.sh"
        text = hook.read_text()
        rewrite(hook, text.replace("-m prolog", str(PROGRAMS / "patient_prolog.py")))
        assert hook.read_text() != text
        yield cluster


def test_a_job_after_one_that_has_just_ended_is_not_requeued(jobs: Jobs, cluster: Cluster) -> None:
    """rad-monitor samples once a second, and its last sample shows jobs that have ended since."""
    # Each takes its memory, is seen with it, and ends with it.
    command = (
        f"echo $RAD_KIND; timeout {{}} python3 {PROGRAMS / 'grower.py'} {jobs.folder} {{}} 28000 || true"
    )
    found = []
    for number in range(JOBS):
        (jobs.folder / f"grow.{number}").touch()
        answer = jobs.accepted(
            "--gpus=1", "--comment=rad:memory=30G", "--wrap", command.format(2.0 + number / JOBS, number)
        )
        found.append(answer)
    done = [jobs.wait(job, "COMPLETED", timeout_s=60) for job in found]
    assert [job["Restarts"] for job in done] == ["0"] * JOBS
    assert [jobs.output(job).splitlines()[0] for job in found] == ["shared"] * JOBS
