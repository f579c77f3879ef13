"""A job that shared its GPU with another user gets back what this cost it, within the limits that the admin set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.time_limits import TimeLimits
from tests.cluster.conftest import started

pytestmark = pytest.mark.cluster

LOOKS_S = 60.0
"""rad-monitor looks four times a minute."""


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    """One node with one GPU, so that two jobs meet on it."""
    spec = ClusterSpec(nodes=(NodeSpec(name="n0", gpu_mib=(40960,)),))
    yield from started(place, spec, name="one")


def trains(jobs: Jobs, user: str, minutes: int) -> int:
    wrap = "python3 fake_train.py --memory 2G --seconds 600"
    job = jobs.accepted("--gpus=1", f"--time={minutes}", "--comment=rad:memory=4G", "--wrap", wrap, user=user)
    jobs.wait(job, "RUNNING")
    return job


def limit(jobs: Jobs, job_id: int) -> str:
    return jobs.fields(job_id)["TimeLimit"]


def test_a_shared_jobs_limit_rises_before_it_is_reached(jobs: Jobs) -> None:
    first, second = trains(jobs, "nobody", 1), trains(jobs, "games", 2)
    jobs.cluster.wait("the first has more time", lambda: limit(jobs, first) == "00:02:00", LOOKS_S)
    jobs.cluster.wait("so has the second", lambda: limit(jobs, second) != "00:02:00", LOOKS_S)
    assert "it requested 1" in jobs.cluster.logs(1000)
    for job in (first, second):
        jobs.cluster.slurm("scontrol", "requeuehold", str(job))
    jobs.cluster.wait(
        "they wait with the limits that they requested",
        lambda: (limit(jobs, first), limit(jobs, second)) == ("00:01:00", "00:02:00"),
        LOOKS_S,
    )


def test_a_partitions_limit_and_a_reservation_hold(jobs: Jobs) -> None:
    job = trains(jobs, "nobody", 10)
    slurm = SlurmCommands(slurm_conf=str(jobs.cluster.place.slurm_conf), timeout_s=10)
    limits, now_s = TimeLimits(slurm), jobs.cluster.clock.now_s()
    end = limits.of(job)
    assert end is not None and (end.limit_s, end.partition) == (600.0, "gpu")
    assert 500.0 < end.end_s - now_s <= 600.0
    assert limits.of(999_999) is None, "a job that Slurm forgot keeps no other from its time"
    assert limits.margin_s(end, node="n0", now_s=now_s) == float("inf")
    window = ("StartTime=now+30minutes", "Duration=60", "Users=root", "Nodes=n0", "Flags=MAINT")
    jobs.cluster.slurm("scontrol", "create", "reservation", "ReservationName=service", *window)
    try:
        assert 1100.0 < limits.margin_s(end, node="n0", now_s=now_s) < 1400.0
        assert limits.margin_s(end, node="n1", now_s=now_s) == float("inf")
        jobs.cluster.slurm("scontrol", "update", "PartitionName=gpu", "MaxTime=15")
        assert limits.margin_s(end, node="n0", now_s=now_s) == 300.0
    finally:
        jobs.cluster.slurm("scontrol", "update", "PartitionName=gpu", "MaxTime=UNLIMITED")
        jobs.cluster.slurm("scontrol", "delete", "ReservationName=service")
