"""For when Slurm's backfill plans a job that has to wait, next to shards and whole GPUs in use; without RAD.

No job starts on a node that would still run at a start that is planned there. A start planned for now, however long it
cannot be, so keeps everybody off the node, those with space among them: `rad simulate` counts on what is seen here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.slurm.versions import Traits
from tests.cluster.conftest import jobs_on, started

pytestmark = pytest.mark.cluster

NODE = NodeSpec(name="n0", gpu_mib=(40960, 40960))
"""39 shards a GPU."""
FEW, MANY, WHOLE, BOTH = "--gres=shard:5", "--gres=shard:30", "--gpus-per-node=1", "--gpus-per-node=2"
PLANNED_S = 60.0
"""Some rounds of backfill."""


@pytest.fixture(scope="module")
def own(place: Place, cluster: Cluster) -> Iterator[Cluster]:
    yield from started(place, ClusterSpec(nodes=(NODE,), with_rad=False), name="plans")


@pytest.fixture
def jobs(own: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(own, request)


def begin(jobs: Jobs, *requests: tuple[str, int]) -> list[int]:
    """Start jobs that ask for these GRES and minutes, and return their ids."""
    ids = [jobs.accepted(gres, f"--time={minutes}", "--wrap", "sleep 1000") for gres, minutes in requests]
    for job in ids:
        jobs.wait(job, "RUNNING")
    return ids


def end(jobs: Jobs, job: int) -> datetime:
    """Return when a job ends at the latest."""
    return datetime.fromisoformat(jobs.fields(job)["EndTime"])


def planned(jobs: Jobs, job: int) -> datetime:
    """Return for when the start of a job that waits is planned."""
    seen: list[str] = []

    def reported() -> bool:
        fields = jobs.fields(job)
        assert fields["JobState"] == "PENDING"
        seen.append(fields["StartTime"])
        return seen[-1] != "Unknown"

    jobs.cluster.wait("its start is planned", reported, PLANNED_S)
    return datetime.fromisoformat(seen[-1])


def test_a_plan_for_whole_gpus_next_to_shards_in_use(jobs: Jobs, here: Traits) -> None:
    first, last = begin(jobs, (FEW, 5), (FEW, 20))
    start = planned(jobs, jobs.accepted(BOTH, "--time=2", "--wrap", "true"))
    behind = jobs.accepted(FEW, "--time=1", "--wrap", "sleep 1000")
    if here.plans_by_kind:
        assert start < end(jobs, first), "now, as if both GPUs were idle"
        assert planned(jobs, behind) > start, "and a job that would share them waits"
    elif here.keeps_gpu_and_shard_apart:
        assert start == end(jobs, last)
        jobs.wait(behind, "RUNNING")
    else:
        assert start == end(jobs, first), (
            "that Slurm takes a GPU for idle as soon as one of its jobs has gone"
        )


def test_a_plan_for_shards_next_to_whole_gpus(jobs: Jobs, here: Traits) -> None:
    first, _ = begin(jobs, (WHOLE, 10), (WHOLE, 20))
    start = planned(jobs, jobs.accepted(MANY, "--time=2", "--wrap", "true"))
    assert start < end(jobs, first) if here.plans_by_kind else start == end(jobs, first)


def test_a_plan_for_whole_gpus_next_to_whole_gpus(jobs: Jobs) -> None:
    _, last = begin(jobs, (WHOLE, 10), (WHOLE, 20))
    assert planned(jobs, jobs.accepted(BOTH, "--time=2", "--wrap", "true")) == end(jobs, last)


def test_a_plan_for_shards_next_to_shards_in_use_lets_others_pass(jobs: Jobs) -> None:
    first, _ = begin(jobs, (MANY, 10), (MANY, 20))
    assert planned(jobs, jobs.accepted(MANY, "--time=2", "--wrap", "true")) == end(jobs, first)
    jobs.wait(jobs.accepted(FEW, "--time=1", "--wrap", "sleep 1000"), "RUNNING")
