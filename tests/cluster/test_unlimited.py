"""MPS that does not start while rad-monitor is away: no job is hurt by a job that nothing holds, and no job fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.monitor.window import read_window
from tests.cluster.conftest import jobs_on, started

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.any_slurm("the ledger and MPS of a node; Slurm starts the jobs and no more"),
]

NODE = NodeSpec(name="n0", gpu_mib=(40960, 40960))


@pytest.fixture(scope="module")
def own(place: Place) -> Iterator[Cluster]:
    root = place.root.with_name(f"{place.root.name}-unheld")
    yield from started(replace(place, root=root), ClusterSpec(nodes=(NODE,)))


@pytest.fixture
def jobs(own: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(own, request)


def train(jobs: Jobs, seconds: float, *argv: str) -> int:
    command = f"python3 fake_train.py --memory 7G --seconds {seconds}"
    job = jobs.submit("--gpus=1", "--comment=rad:memory=8G", *argv, "--wrap", command)
    assert job.job_id is not None, job.messages
    return job.job_id


def gpu_of(own: Cluster, job_id: int) -> str:
    def found() -> dict[int, str]:
        return {held["job_id"]: held["gpus"][0] for held in own.allocations("n0")}

    own.wait(f"job {job_id} is placed", lambda: job_id in found(), 30)
    return found()[job_id]


def watched(own: Cluster) -> bool:
    return read_window(own.place.run / "n0", now_s=own.clock.now_s()) is not None


def without_monitor(own: Cluster) -> None:
    own.daemons.kill("monitor-n0")
    own.wait("its last word is old", lambda: not watched(own), 30)


def test_a_job_that_neither_mps_nor_the_guard_limits_shares_with_no_new_job(jobs: Jobs, own: Cluster) -> None:
    no_mps = own.place.gpus("n0") / "no-mps"
    no_mps.touch()
    own.wait("rad-monitor's first word", lambda: watched(own), 60)
    first = train(jobs, 600)
    jobs.wait(first, "RUNNING")
    alongside = [train(jobs, 600) for _ in range(2)]
    for job in alongside:
        jobs.wait(job, "RUNNING")  # three on two GPUs: the guard holds them all
        assert jobs.restarts(job) == 0
    own.slurm("scancel", *map(str, alongside))
    own.wait("they are gone", lambda: len(own.allocations("n0")) == 1, 30)
    without_monitor(own)
    try:
        other = train(jobs, 600)
        jobs.wait(other, "RUNNING")
        assert gpu_of(own, first) != gpu_of(own, other), "it begins on an idle GPU"
        no_mps.unlink()
        late = train(jobs, 1)
        own.wait(f"job {late} went back", lambda: jobs.restarts(late) > 0, 30)
        firm = train(jobs, 1, "--no-requeue")
        assert jobs.wait(firm, "COMPLETED", timeout_s=30)["Restarts"] == "0", "it is not failed for our fault"
        own.wait(
            f"the end of {firm} woke {late}, and it went back again", lambda: jobs.restarts(late) > 1, 30
        )
        assert jobs.output(late) == "", "it has not begun"
    finally:
        no_mps.unlink(missing_ok=True)
        own.start_monitor(NODE)
    jobs.wait(late, "COMPLETED", timeout_s=60)
    assert jobs.state(first) == jobs.state(other) == "RUNNING", "beside one of them"
    assert own.slurm("sinfo", "-R", "-h") == ""


def test_a_job_that_mps_limits_shares_while_the_monitor_is_away(jobs: Jobs, own: Cluster) -> None:
    without_monitor(own)
    try:
        for job in [train(jobs, 600) for _ in range(3)]:
            assert jobs.wait(job, "RUNNING")["Restarts"] == "0", "three on two GPUs"
    finally:
        own.start_monitor(NODE)
