"""What cuDNN's convolutions borrow for one call, from shapes alone.

The same laws, found on measured H200 runs, as `gpumemnet.trace.convolution` applies to traced calls.
"""

from __future__ import annotations

import math
from functools import lru_cache

INT32_MAX = (1 << 31) - 1
TILE = 128
"""Rows and columns of the output that one thread block computes."""
BLOCKS = 2 * 132
"""Blocks that cuDNN aims at: two for each multiprocessor of an H200."""
PIXELS_PER_SLICE = 512
"""Least length of a part of the sum over pixels."""


@lru_cache(maxsize=4096)
def workspaces(
    *, x: tuple[int, ...], y: tuple[int, ...], weights: int, groups: int, item_bytes: int
) -> tuple[int, int]:
    """Return the workspace of a forward or data-gradient call, and that of the weight gradient's call.

    Tensor core kernels want the channels last: input, weight and output are copied into that order. Kernels of one
    pixel and depthwise ones run in place. A weight gradient with few tiles is summed in parts, each in fp32.

    Args:
        x: Shape of the input.
        y: Shape of the output.
        weights: Elements of the weight.
        groups: Number of groups.
        item_bytes: Bytes per element.
    """
    ins, outs = x[1], y[1]
    area = weights * groups // max(ins * outs, 1)
    if area <= 1 or 1 < groups == ins:
        return 0, 0
    n_x, n_y = math.prod(x), math.prod(y)
    if max(n_x, n_y) > INT32_MAX:
        largest = (
            max(n_x, n_y) * item_bytes
        )  # indices beyond 32 bits: another kernel, which copies one of the two
        return largest, largest
    copies = (n_x + n_y + weights) * item_bytes
    return copies, copies + _slices(y, weights, groups) * 4 * weights


def _slices(y: tuple[int, ...], weights: int, groups: int) -> int:
    """Return into how many parts the sum of a weight gradient is cut, so that each multiprocessor has work."""
    rows = math.ceil(y[1] / groups / TILE)
    columns = math.ceil(weights / max(y[1], 1) / TILE)
    pixels = y[0] * math.prod(y[2:])
    slices = min(BLOCKS // max(rows * columns * groups, 1), pixels // PIXELS_PER_SLICE)
    return slices if slices > 1 else 0


@lru_cache(maxsize=4096)
def groups_of(weights: int, ins: int, outs: int) -> int:
    """Return the number of groups that a weight's size tells: cubic kernels of up to 11 pixels, depthwise first.

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
