"""The caching allocator with limited GPU memory, as in GPUMemNet's runs."""

from __future__ import annotations

from gpumemnet.gpu_memory.allocator.caching import CachingAllocator
from gpumemnet.units import MIB

GPU_BYTES = 38_800 * MIB
"""Memory of an A100 of 40 GB (40,536 MiB) for the allocator, after a context and libraries of about 1,700 MiB."""


class GpuFull(Exception):
    """The GPU has no memory for another segment."""


class GpuAllocator(CachingAllocator):
    """The caching allocator with limited GPU memory: it frees cached segments, then fails."""

    def __init__(self, gpu_bytes: int | None) -> None:
        super().__init__()
        self.gpu_bytes = gpu_bytes
        self.retries = 0

    def _reserve(self, n_bytes: int) -> None:
        if self.gpu_bytes is not None and self.reserved_bytes + n_bytes > self.gpu_bytes:
            self.retries += 1
            self.empty_cache()
            if self.reserved_bytes + n_bytes > self.gpu_bytes:
                raise GpuFull
        super()._reserve(n_bytes)
