"""Where jobs end up: seen on the GPUs themselves."""

from __future__ import annotations

import pytest

from lab.cluster import Cluster
from lab.config import shards_of
from lab.jobs import Jobs
from lab.place import NodeSpec
from lab.watch import Watcher
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.window import read_window

pytestmark = pytest.mark.cluster

WHOLE = shards_of(NodeSpec(name="n0").gpu_mib[0])


def train(memory: str, seconds: float, *, smact: float = 0.2) -> str:
    return f"python3 fake_train.py --memory {memory} --seconds {seconds} --smact {smact}"


def watch(jobs: Jobs, job_ids: list[int], *, timeout_s: float = 60.0) -> Watcher:
    """Follow jobs to their end and return what their runs did on the GPUs."""
    watcher = Watcher({"n0": SimulatedGpus(jobs.cluster.place.gpus("n0"))})
    open_jobs = set(job_ids)

    def all_over() -> bool:
        watcher.sample()
        rows = jobs.all_fields()
        open_jobs.difference_update(
            job for job in job_ids if rows.get(job, {}).get("JobState") == "COMPLETED"
        )
        return not open_jobs

    jobs.cluster.wait(f"jobs {job_ids} complete", all_over, timeout_s)
    return watcher


def node_state(cluster: Cluster) -> str:
    return cluster.slurm("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").strip()


def test_more_jobs_than_gpus_share_and_never_overfill(jobs: Jobs) -> None:
    wrap = ("--gpus=1", "--comment=rad:memory=10G", "--wrap", train("9G", 4))
    ids = [jobs.accepted(*wrap, user=user) for user in ("nobody", "games") * 4]
    watcher = watch(jobs, ids)
    assert all(len(run.gpus) == 1 for job in ids for run in watcher.of(job))
    assert any(run.neighbours for job in ids for run in watcher.of(job))
    assert watcher.fullest_share <= 1.0


@pytest.mark.any_slurm("readings of a GPU by the Prolog")
@pytest.mark.slow
def test_unmanaged_processes_on_a_gpu_are_seen_and_avoided(jobs: Jobs) -> None:
    gpus = SimulatedGpus(jobs.cluster.place.gpus("n0"))
    for physical_gpu in gpus.gpus():
        gpus.hold(physical_gpu.uuid, 35 * GIB, smact=0.5)  # this process is in no job
        try:
            jobs.cluster.wait(
                "the monitor sees it", lambda uuid=physical_gpu.uuid: seen_busy(jobs.cluster, uuid), 20
            )
            job = jobs.accepted("--gpus=1", "--comment=rad:memory=12G", "--wrap", train("11G", 1))
            assert watch(jobs, [job]).of(job)[0].gpus != {("n0", physical_gpu.index)}
        finally:
            gpus.release()


def seen_busy(cluster: Cluster, uuid: str) -> bool:
    window = read_window(cluster.place.run / "n0", now_s=cluster.clock.now_s())
    return any(gpu.uuid == uuid and (gpu.smact or 0) > 0.05 and gpu.memory_used_bytes for gpu in window or ())


def test_a_multi_gpu_job_gets_distinct_idle_gpus_next_to_shared_ones(jobs: Jobs) -> None:
    shared = [
        jobs.accepted("--gpus=1", "--comment=rad:memory=10G", "--wrap", train("9G", 6)) for _ in range(2)
    ]
    for job in shared:
        jobs.wait(job, "RUNNING")
    pair = jobs.accepted("--gres=gpu:2", "--wrap", train("20G", 2))
    watcher = watch(jobs, [*shared, pair])
    runs = watcher.of(pair)
    assert [len(run.gpus) for run in runs if run.gpus] == [2]
    assert all(not run.neighbours for run in runs)


def test_exclusive_jobs_never_have_neighbours(jobs: Jobs) -> None:
    alone = ("--gpus=1", "--comment=rad:memory=5G,policy=exclusive", "--wrap", train("5G", 2))
    shared = ("--gpus=1", "--comment=rad:memory=5G", "--wrap", train("5G", 2))
    order = [alone, shared, shared, alone, shared, alone, shared, shared, alone]
    ids = [jobs.accepted(*argv) for argv in order]
    watcher = watch(jobs, ids, timeout_s=90)
    for job, argv in zip(ids, order, strict=True):
        if argv is alone:
            assert all(not run.neighbours for run in watcher.of(job))


def test_a_job_without_rad_lines_has_its_gpu_to_itself(jobs: Jobs) -> None:
    shared = [
        jobs.accepted("--gpus=1", "--comment=rad:memory=5G", "--wrap", train("5G", 4)) for _ in range(3)
    ]
    for job in shared:
        jobs.wait(job, "RUNNING")
    plain = jobs.accepted("--gpus=1", "--wrap", train("5G", 2))
    watcher = watch(jobs, [*shared, plain])
    assert watcher.of(plain) and not any(run.neighbours for run in watcher.of(plain))


@pytest.mark.any_slurm("the ledger under many hooks at once")
@pytest.mark.slow
def test_two_hundred_jobs_at_once_end_well_and_leave_nothing_reserved(jobs: Jobs, cluster: Cluster) -> None:
    array = jobs.accepted(
        "--array=1-200",
        "--gpus=1",
        "--comment=rad:memory=4G",
        "--output=/dev/null",
        "--mem=10",
        "--wrap",
        "true",
    )

    usable = {
        physical_gpu.uuid: physical_gpu.usable_bytes
        for physical_gpu in SimulatedGpus(cluster.place.gpus("n0")).gpus()
    }
    most_at_once = 0

    def over() -> bool:
        nonlocal most_at_once
        allocations = cluster.allocations("n0")
        most_at_once = max(most_at_once, len(allocations))
        assert len({row["job_id"] for row in allocations}) == len(allocations)
        for uuid, usable_bytes in usable.items():
            assert sum(row["booked_bytes"] for row in allocations if uuid in row["gpus"]) <= usable_bytes
        rows = [row for row in jobs.all_fields().values() if row.get("ArrayJobId") == str(array)]
        return bool(rows) and all(row["JobState"] == "COMPLETED" for row in rows)

    cluster.wait("200 tasks complete", over, 400)
    assert most_at_once > len(usable), "the tasks never shared: this test saw nothing"
    cluster.wait("node idle", lambda: node_state(cluster) == "idle", 30)
    cluster.wait("nothing stays reserved", lambda: not cluster.allocations("n0"), 90)


def test_the_node_is_never_drained(cluster: Cluster, jobs: Jobs) -> None:
    job = jobs.accepted("--gpus=1", "--comment=rad:memory=4G", "--wrap", "false")
    assert jobs.wait(job)["JobState"] == "FAILED"
    assert "drain" not in node_state(cluster)
