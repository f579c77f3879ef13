"""MPS that does not start while rad-monitor is away: no job is hurt by a job that nothing holds, and no job fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.monitor.window import read_window
from tests.cluster.conftest import started

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.any_slurm("the ledger and MPS of a node; Slurm starts the jobs and no more"),
]

NODE = NodeSpec(name="n0", gpu_mib=(40960, 40960))


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    yield from started(place, ClusterSpec(nodes=(NODE,)), name="unlimited")


def train(jobs: Jobs, seconds: float, *argv: str) -> int:
    command = f"python3 fake_train.py --memory 7G --seconds {seconds}"
    return jobs.accepted("--gpus=1", "--comment=rad:memory=8G", *argv, "--wrap", command)


def gpu_of(cluster: Cluster, job_id: int) -> str:
    def found() -> dict[int, str]:
        return {allocation["job_id"]: allocation["gpus"][0] for allocation in cluster.allocations("n0")}

    cluster.wait(f"job {job_id} is placed", lambda: job_id in found(), 30)
    return found()[job_id]


def watched(cluster: Cluster) -> bool:
    return read_window(cluster.place.run / "n0", now_s=cluster.clock.now_s()) is not None


def without_monitor(cluster: Cluster) -> None:
    cluster.daemons.kill("monitor-n0")
    cluster.wait("its last word is old", lambda: not watched(cluster), 30)


def test_a_job_that_neither_mps_nor_the_guard_limits_shares_with_no_new_job(
    jobs: Jobs, cluster: Cluster
) -> None:
    no_mps = cluster.place.gpus("n0") / "no-mps"
    no_mps.touch()
    cluster.wait("rad-monitor's first word", lambda: watched(cluster), 60)
    first = train(jobs, 600)
    jobs.wait(first, "RUNNING")
    alongside = [train(jobs, 600) for _ in range(2)]
    for job in alongside:
        jobs.wait(job, "RUNNING")  # three on two GPUs: the guard holds them all
        assert jobs.restarts(job) == 0
    cluster.slurm("scancel", *map(str, alongside))
    cluster.wait("they are gone", lambda: len(cluster.allocations("n0")) == 1, 30)
    without_monitor(cluster)
    try:
        other = train(jobs, 600)
        jobs.wait(other, "RUNNING")
        assert gpu_of(cluster, first) != gpu_of(cluster, other), "it begins on an idle GPU"
        no_mps.unlink()
        late = train(jobs, 1)
        cluster.wait(f"job {late} went back", lambda: jobs.restarts(late) > 0, 30)
        firm = train(jobs, 1, "--no-requeue")
        assert jobs.wait(firm, "COMPLETED", timeout_s=30)["Restarts"] == "0", "it is not failed for our fault"
        cluster.wait(
            f"the end of {firm} woke {late}, and it went back again", lambda: jobs.restarts(late) > 1, 30
        )
        assert jobs.output(late) == "", "it has not begun"
    finally:
        no_mps.unlink(missing_ok=True)
        cluster.start_monitor(NODE)
    jobs.wait(late, "COMPLETED", timeout_s=60)
    assert jobs.state(first) == jobs.state(other) == "RUNNING", "next to one of them"
    assert cluster.slurm("sinfo", "-R", "-h") == ""


def test_a_job_that_mps_limits_shares_while_the_monitor_is_away(jobs: Jobs, cluster: Cluster) -> None:
    without_monitor(cluster)
    try:
        for job in [train(jobs, 600) for _ in range(3)]:
            assert jobs.wait(job, "RUNNING")["Restarts"] == "0", "three on two GPUs"
    finally:
        cluster.start_monitor(NODE)
