from __future__ import annotations

from dataclasses import replace

import pytest

from lab.config import shards_of
from lab.daemons import LabError
from lab.real_gpus import real_node
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.units import GIB, MIB, to_mib_up

H200 = GpuReading(
    uuid="GPU-0",
    index=0,
    name="NVIDIA H200",
    memory_total_bytes=150_754_820_096,
    memory_reserved_bytes=644_939_776,
    memory_used_bytes=0,
    time_s=0.0,
)


def test_all_of_a_real_gpu_is_divided_into_shards() -> None:
    node = real_node("n0", [H200, replace(H200, index=3)])
    assert node.devices == ("/dev/nvidia0", "/dev/nvidia3")
    usable_mib = to_mib_up(H200.usable_bytes)
    assert [shards_of(mib) for mib in node.gpu_mib] == [(usable_mib - 1) // 1024] * 2


def test_no_more_gpus_than_the_jobs_can_fill_and_all_alike() -> None:
    small = replace(H200, index=1, memory_total_bytes=48 * GIB)
    physical_gpus = [replace(H200, index=index) for index in (0, 2, 3, 4, 5)]
    assert real_node("n0", [small, *physical_gpus]).devices == ("/dev/nvidia1",)
    assert real_node("n0", physical_gpus).devices == tuple(f"/dev/nvidia{index}" for index in (0, 2, 3, 4))


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"mig": True}, r"GPU 0 is partitioned"),
        ({"healthy": False}, r"GPU 0 needs a reset"),
        ({"processes": (GpuProcess(pid=71, memory_bytes=300 * MIB),)}, r"GPU 0 is in use by process 71"),
        ({"memory_used_bytes": 120 * GIB}, r"GPU 0 has 19\.\d GiB free, not 39\.0 GiB"),
    ],
)
def test_a_gpu_that_is_not_free_is_left_alone(change: dict[str, object], reported: str) -> None:
    with pytest.raises(LabError, match=reported):
        real_node("n0", [replace(H200, **change)])  # type: ignore[arg-type]


def test_a_machine_without_gpus_says_so() -> None:
    with pytest.raises(LabError, match="NVML shows none"):
        real_node("n0", [])
