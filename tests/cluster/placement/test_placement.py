"""Where jobs end up: seen on the GPUs themselves."""

from __future__ import annotations

import pytest

from lab.cluster import Cluster
from lab.config import shards_of
from lab.jobs import Jobs
from lab.place import NodeSpec
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from tests.cluster.trainings import follow, train, unmanaged

pytestmark = pytest.mark.cluster

WHOLE = shards_of(NodeSpec(name="n0").gpu_mib[0])


def node_state(cluster: Cluster) -> str:
    return cluster.slurm("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").strip()


def test_more_jobs_than_gpus_share_and_never_overfill(jobs: Jobs) -> None:
    wrap = ("--gpus=1", "--comment=rad:memory=10G", "--wrap", train("9G"))
    ids = [jobs.accepted(*wrap, user=user) for user in ("nobody", "games") * 4]
    watcher = follow(jobs, ids, together=ids)
    assert all(len(run.gpus) == 1 for job in ids for run in watcher.of(job))
    assert any(run.neighbours for job in ids for run in watcher.of(job))
    assert watcher.fullest_share <= 1.0


@pytest.mark.any_slurm("readings of a GPU by the Prolog")
@pytest.mark.slow
def test_unmanaged_processes_on_a_gpu_are_seen_and_avoided(jobs: Jobs) -> None:
    for physical_gpu in SimulatedGpus(jobs.cluster.place.gpus("n0")).gpus():
        with unmanaged(jobs.cluster, "n0", physical_gpu.uuid, 35 * GIB, smact=0.5):
            job = jobs.accepted("--gpus=1", "--comment=rad:memory=12G", "--wrap", train("11G"))
            assert follow(jobs, [job]).of(job)[0].gpus != {("n0", physical_gpu.index)}


def test_a_multi_gpu_job_gets_distinct_idle_gpus_next_to_shared_ones(jobs: Jobs) -> None:
    shared = [jobs.accepted("--gpus=1", "--comment=rad:memory=10G", "--wrap", train("9G")) for _ in range(2)]
    for job in shared:
        jobs.wait(job, "RUNNING")
    pair = jobs.accepted("--gres=gpu:2", "--wrap", train("20G"))
    watcher = follow(jobs, [*shared, pair], gpus={pair: 2}, together=[*shared, pair])
    runs = watcher.of(pair)
    assert [len(run.gpus) for run in runs if run.gpus] == [2]
    assert all(not run.neighbours for run in runs)


def test_exclusive_jobs_never_have_neighbours(jobs: Jobs) -> None:
    alone = ("--gpus=1", "--comment=rad:memory=5G,policy=exclusive", "--wrap", train("5G"))
    shared = ("--gpus=1", "--comment=rad:memory=5G", "--wrap", train("5G"))
    order = [alone, shared, shared, alone, shared, alone, shared, shared, alone]
    ids = [jobs.accepted(*argv) for argv in order]
    watcher = follow(jobs, ids)
    for job, argv in zip(ids, order, strict=True):
        if argv is alone:
            assert all(not run.neighbours for run in watcher.of(job))


def test_a_job_without_rad_lines_has_its_gpu_to_itself(jobs: Jobs) -> None:
    shared = [jobs.accepted("--gpus=1", "--comment=rad:memory=5G", "--wrap", train("5G")) for _ in range(3)]
    for job in shared:
        jobs.wait(job, "RUNNING")
    plain = jobs.accepted("--gpus=1", "--wrap", train("5G"))
    watcher = follow(jobs, [*shared, plain], together=[*shared, plain])
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
