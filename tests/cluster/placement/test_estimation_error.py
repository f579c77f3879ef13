"""Jobs that need more than any job thought, on a GPU that has no space for all of their estimation errors at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.ledger.codec import allocation_from
from slurm_plugin.core.ledger.pooled_reserve import pooled_bytes, share_of
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import MIB, from_mib, to_mib_down
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from tests.cluster.conftest import started

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.any_slurm("rad-monitor's choice of a job to stop, from readings alone"),
]

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
GPUS = len(NodeSpec(name="n0").gpu_mib)
SHARD_MIB = 1024
RERUN_S = 90


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    """A Slurm of its own: 22.05 loses count of shards in time (docs/versions.md), and this needs each of them."""
    yield from started(place, ClusterSpec(nodes=(NodeSpec(name="n0"),)), name="surprise")


def submit(jobs: Jobs, rad: str, command: str, *, user: str = "nobody") -> int:
    return jobs.accepted(
        "--gpus=1", f"--comment=rad:{rad}", "--open-mode=append", "--wrap", f"exec {command}", user=user
    )


def grower(jobs: Jobs, name: str, rad: str, mib: int | None = None, *, user: str = "nobody") -> int:
    size = "" if mib is None else str(mib)
    return submit(jobs, rad, f"python3 {PROGRAMS / 'grower.py'} {jobs.folder} {name} {size}", user=user)


def allocation_of(cluster: Cluster, job: int) -> Allocation:
    def rows() -> list[Allocation]:
        found = [allocation_from(row) for row in cluster.allocations("n0")]
        return [allocation for allocation in found if allocation.job_id == job]

    cluster.wait(f"job {job} is placed", lambda: bool(rows()), 40)
    return rows()[0]


def test_the_furthest_above_its_estimate_goes_and_its_neighbours_feel_nothing(
    jobs: Jobs, cluster: Cluster
) -> None:
    for _ in range(GPUS - 1):  # so that all others meet on one GPU
        allocation_of(cluster, submit(jobs, "policy=exclusive", "sleep 600"))
    with cluster.changed_rad_toml():
        cluster.set_rad("confidence", "0.5")
        one, two = (
            grower(jobs, name, f"model=models/resnet50_torchinfo.txt,batch_size={size}")
            for name, size in (("one", 69), ("two", 79))  # whose estimates come just below whole shards
        )
        first, second = allocation_of(cluster, one), allocation_of(cluster, two)
    assert first.gpus == second.gpus and first.profile_key != second.profile_key
    for allocation in (first, second):
        assert allocation.estimate_bytes is not None
        assert (
            allocation.estimate_bytes
            <= allocation.booked_bytes
            < allocation.limit_bytes
            <= 2 * allocation.booked_bytes
        )
    (physical_gpu,) = [
        physical_gpu
        for physical_gpu in SimulatedGpus(cluster.place.gpus("n0")).gpus()
        if physical_gpu.uuid == first.gpus[0]
    ]
    left_bytes = physical_gpu.usable_bytes - pooled_bytes([share_of(first), share_of(second)])
    third_mib = to_mib_down(left_bytes) // SHARD_MIB * SHARD_MIB
    third = grower(jobs, "third", f"memory={third_mib}M", third_mib, user="games")
    assert allocation_of(cluster, third).gpus == first.gpus
    excess_bytes = first.limit_bytes + second.limit_bytes + from_mib(third_mib) - physical_gpu.usable_bytes
    assert excess_bytes > 64 * MIB, (
        "the test needs more than the memory kept for all estimation errors at once"
    )

    for name, allocation in (("one", first), ("two", second)):
        (jobs.folder / f"draft.{name}").write_text(str(to_mib_down(allocation.limit_bytes)))
        (jobs.folder / f"draft.{name}").replace(jobs.folder / f"grow.{name}")
    cluster.wait("a surprise is stopped", lambda: max(jobs.restarts(one), jobs.restarts(two)) > 0, 40)
    (jobs.folder / "grow.third").touch()
    cluster.wait(
        "the third has what it booked", lambda: grown(cluster, first.gpus[0], from_mib(third_mib)), 40
    )
    (jobs.folder / "end").touch()
    done = jobs.wait(third, "COMPLETED", timeout_s=60)
    assert done["Restarts"] == "0" and "OutOfMemory" not in jobs.output(third)

    stopped, other = (one, two) if jobs.restarts(one) > 0 else (two, one)
    above = {
        one: first.limit_bytes - (first.estimate_bytes or 0),
        two: second.limit_bytes - (second.estimate_bytes or 0),
    }
    assert above[stopped] >= above[other], "the one furthest above its own estimate went"
    assert jobs.wait(other, "COMPLETED", timeout_s=60)["Restarts"] == "0"
    again = jobs.fields(stopped)
    assert "another job lacks booked memory" in again["AdminComment"]


def grown(cluster: Cluster, gpu: str, size_bytes: int) -> bool:
    readings = SimulatedGpus(cluster.place.gpus("n0")).read()
    return any(one.memory_bytes == size_bytes for row in readings if row.uuid == gpu for one in row.processes)
