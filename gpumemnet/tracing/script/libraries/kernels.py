"""Skip launches of libraries' Triton kernels (TRL, Liger, Unsloth, flash-linear-attention).

A launch allocates nothing in PyTorch: all memory that a kernel reads or writes is allocated before, and counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from gpumemnet.tracing.script.libraries.imported import After

_PROPERTIES = {
    "max_shared_mem": 232_448,
    "max_num_regs": 65_536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1_980_000,
    "mem_clock_rate": 3_201_000,
    "mem_bus_width": 6_144,
}
"""Properties of an H200 as returned by CUDA's driver (bytes, kHz, bits); kernels choose tile sizes by them."""


def left_out() -> None:
    """Skip all Triton kernel launches, if the script ever imports Triton."""
    if "triton" in sys.modules:
        _pretended()
    else:
        sys.meta_path.insert(0, After("triton", _pretended))


def _pretended() -> None:
    from triton.runtime import driver, jit

    jit.KernelInterface.__getitem__ = lambda kernel, grid: _not_launched
    if hasattr(driver, "set_active"):
        driver.set_active(_Driver())


def _not_launched(*_: Any, **__: Any) -> None:
    """Stand for the launch of any kernel."""


class _Driver:
    """Replacement for Triton's driver."""

    utils = SimpleNamespace(get_device_properties=lambda device: dict(_PROPERTIES))

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return lambda *_, **__: [1.0, 1.0, 1.0]
