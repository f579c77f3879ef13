"""fake_train.py on real GPUs, with a driver that exists only here; tests/gpu/test_demo.py runs it on the real one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.core.recovery.classify import Ending, classify
from slurm_plugin.core.recovery.oom_patterns import load_patterns
from slurm_plugin.core.units import GIB, MIB

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
import fake_train
from cuda_gpu import CudaError, CudaGpu


class Driver:
    """Answers as libcuda does for one GPU of 8 GiB; keeps the calls."""

    def __init__(self, *, cap_bytes: int = 8 * GIB, broken: str = "") -> None:
        self.free_bytes, self.cap_bytes, self.broken = cap_bytes, cap_bytes, broken
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == self.broken:
                return 999
            if name == "cuMemAlloc_v2":
                wanted = arguments[1].value
                if wanted > self.free_bytes:
                    return 2
                self.free_bytes -= wanted
            if name == "cuMemGetInfo_v2":
                arguments[0]._obj.value, arguments[1]._obj.value = self.free_bytes, self.cap_bytes
            return 0

        return call


def test_it_grows_by_what_is_missing_and_counts_its_context() -> None:
    driver = Driver()
    gpu = fake_train.RealGpu(0, "GPU-0", driver)
    for memory_bytes in (fake_train.CONTEXT_BYTES, 2 * GIB, GIB, 3 * GIB):
        gpu.grow_to(memory_bytes, smact=0.1)
    assert driver.free_bytes == 8 * GIB - (3 * GIB - fake_train.CONTEXT_BYTES)
    assert driver.calls.count("cuMemAlloc_v2") == 2
    assert driver.calls.count("cuInit") == 1


def test_a_cap_ends_it_in_words_that_the_epilog_knows() -> None:
    gpu = fake_train.RealGpu(0, "GPU-0", Driver(cap_bytes=4 * GIB))
    gpu.grow_to(3 * GIB, smact=0.1)
    with pytest.raises(fake_train.OutOfMemoryError) as caught:
        gpu.grow_to(30 * GIB, smact=0.1)
    text = f"torch.OutOfMemoryError: {caught.value}"
    ending = Ending(exit_status=256, peak_bytes=3 * GIB, limit_bytes=4 * GIB)
    outcome = classify(ending, (text,), load_patterns())
    assert (outcome.kind, outcome.pattern, outcome.attempted_bytes) == ("gpu-oom", "pytorch", 27 * GIB)


def test_another_fault_of_the_driver_is_named_and_is_no_lack_of_memory() -> None:
    gpu = fake_train.RealGpu(0, "GPU-0", Driver(broken="cuDevicePrimaryCtxRetain"))
    with pytest.raises(CudaError, match="cuDevicePrimaryCtxRetain: CUDA error 999"):
        gpu.grow_to(2 * GIB, smact=0.1)


def test_nothing_beats_before_there_is_memory() -> None:
    driver = Driver()
    gpu = CudaGpu(0, driver)
    gpu.beat()
    assert driver.calls == []
    gpu.take(300 * MIB)
    gpu.beat()
    assert driver.calls[-2:] == ["cuMemsetD8_v2", "cuCtxSynchronize"]
