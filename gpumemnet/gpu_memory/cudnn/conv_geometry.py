"""Derive a convolution's groups, and the memory of a Fourier transform, from its shapes (see `plans`)."""

from __future__ import annotations

import math
from functools import lru_cache

from gpumemnet.gpu_memory.rules import numbers


def fourier_bytes(*, x: tuple[int, ...], y: tuple[int, ...], weights: int, groups: int) -> int:
    """Return the memory of a convolution by Fourier transform: the weight at every frequency of the image.

    cuDNN rarely chooses it, for reasons that no text shows; if it would be large, the bound must be wide.

    Args:
        x: Shape of the input: batch, channels, sides.
        y: Shape of the output.
        weights: Elements of the weight.
        groups: Number of groups.
    """
    area = weights * groups // max(x[1] * y[1], 1)
    if area <= 1 or groups > 1 or max(x[2:]) > numbers.of("cudnn")["largest_fourier"]:
        return 0
    return x[1] * y[1] * math.prod(x[2:]) * 4


@lru_cache(maxsize=4096)
def groups_of(weights: int, ins: int, outs: int) -> int:
    """Return the number of groups implied by a weight's size: cubic kernels of up to 11 pixels, depthwise first.

    Args:
        weights: Elements of the weight.
        ins: Input channels.
        outs: Output channels.

    Returns:
        1 unless the weight is too small for every output to read every input.
    """
    per_output = weights // max(outs, 1)
    if per_output == ins or not per_output or not ins:
        return 1
    if ins == outs and per_output in (9, 25, 49, 81, 121):
        return ins
    for area in (9, 25, 49, 1, 81, 121):
        inner, rest = divmod(per_output, area)
        if not rest and 0 < inner <= ins and ins % inner == 0:
            return ins // inner
    return 1
