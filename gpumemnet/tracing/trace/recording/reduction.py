"""Buffer of a reduction of a tensor (see cudnn/reduction.py)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from gpumemnet.gpu_memory.cudnn import reduction


def buffer_bytes(x: Tensor, dims: Sequence[int] | None) -> int:
    """Return the size of the buffer for reducing `x` over `dims` (None or empty: all).

    Args:
        x: Tensor to reduce.
        dims: The dimensions; None or empty for all.
    """
    reduced = {d % x.dim() for d in dims} if dims else set(range(x.dim()))
    sizes = ((x.stride(d), x.shape[d], d in reduced) for d in range(x.dim()) if x.shape[d] > 1)
    return reduction.buffer_bytes(tuple(sizes))
