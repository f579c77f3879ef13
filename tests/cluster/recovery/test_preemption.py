"""Jobs that share and are preempted: Slurm's own affair, and no out-of-memory error, whatever they printed before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.config import shards_of
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from tests.cluster.conftest import started

pytestmark = pytest.mark.cluster

GPU_MIB = 40960
PARTITION = "PartitionName={} Nodes=ALL MaxTime=INFINITE State=UP PriorityTier={} PreemptMode={}"
RADS = "[partition.{}]\ncollocate = true\ngpu_memory_mib = 40360\nshards_per_gpu = {}"
WORDS = (
    "echo torch.OutOfMemoryError: CUDA out of memory. >&2; trap 'exit 1' TERM; while :; do sleep 0.1; done"
)


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    """One GPU, and partitions that make space for others in each of Slurm's two ways."""
    partitions = {"requeued": (1, "REQUEUE"), "cancelled": (1, "CANCEL"), "first": (9, "OFF")}
    spec = ClusterSpec(
        nodes=(NodeSpec(name="n0", gpu_mib=(GPU_MIB,)),),
        slurm_conf=(
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            *(PARTITION.format(name, *how) for name, how in partitions.items()),
        ),
        rad_toml=tuple(RADS.format(name, shards_of(GPU_MIB)) for name in partitions),
    )
    yield from started(place, spec, name="preempt")


def test_preempted_jobs_are_left_to_slurm(jobs: Jobs) -> None:
    ids = {
        name: jobs.accepted("-p", name, "--gpus=1", "--comment=rad:memory=18G", "--wrap", WORDS)
        for name in ("requeued", "cancelled")
    }
    for job in ids.values():
        jobs.wait(job, "RUNNING")
        jobs.cluster.wait("it has said so", lambda job=job: "memory" in jobs.output(job), 20)
    before = jobs.fields(ids["requeued"])
    first = jobs.accepted("-p", "first", "--gpus=1", "--comment=rad:memory=30G", "--wrap", "sleep 600")
    jobs.wait(first, "RUNNING", timeout_s=60)
    jobs.cluster.wait(
        "only the first holds memory",
        lambda: [allocation["job_id"] for allocation in jobs.cluster.allocations("n0")] == [first],
        20,
    )
    waits, ended = jobs.fields(ids["requeued"]), jobs.fields(ids["cancelled"])
    assert (ended["JobState"], ended["Restarts"]) == ("PREEMPTED", "0")
    assert (waits["JobState"], waits["Restarts"]) == ("PENDING", "1")
    assert [waits[name] for name in ("TresPerNode", "Comment")] == [
        before[name] for name in ("TresPerNode", "Comment")
    ], "the same request and the same attempt"
