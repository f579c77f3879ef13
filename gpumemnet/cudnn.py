"""What cuDNN's convolutions borrow for one call, from shapes alone; found on measured H200 runs."""

from __future__ import annotations

import math
from functools import lru_cache

INT32_MAX = (1 << 31) - 1
TILE = 128
"""Rows and columns of the output that one thread block computes."""
BLOCKS = 2 * 132
"""Blocks that cuDNN aims at: two for each multiprocessor of an H200. Found by trying against 70 measured CNNs."""
PIXELS_PER_SLICE = 512
"""Least length of a part of the sum over pixels; found in the same way."""
LARGEST_FOURIER = 256
"""Sides beyond which cuDNN has no convolution by Fourier transform."""


@lru_cache(maxsize=4096)
def workspace_bytes(
    kind: str,
    *,
    x: tuple[int, ...],
    y: tuple[int, ...],
    weights: int,
    groups: int,
    item_bytes: int,
    strided: bool,
    rows: int = 0,
) -> int:
    """Return the workspace of one call.

    cuDNN's tensor core kernels want the channels last. For tensors in PyTorch's default order its heuristics choose
    kernels that first copy input, weight and output (or its gradient) into that order, in the workspace: on an H200
    the peaks of runs with 3x3 and larger kernels differ by just these three tensors. Depthwise kernels run in place,
    and so do kernels of one pixel, except backward through those with a stride. A weight gradient with few tiles is
    summed in parts, each in fp32.

    Args:
        kind: "forward", "data" or "weight".
        x: Shape of the input.
        y: Shape of the output.
        weights: Elements of the weight.
        groups: Number of groups.
        item_bytes: Bytes per element.
        strided: Whether a stride is above 1.
        rows: First dimension of the weight; that of a transposed convolution is not the output's channels.
    """
    area = weights * groups // max(x[1] * y[1], 1)
    depthwise = 1 < groups == x[1]
    one_pixel = area <= 1 and (kind == "forward" or not strided)
    if depthwise or one_pixel:
        return 0
    n_x, n_y = math.prod(x), math.prod(y)
    if max(n_x, n_y) > INT32_MAX:  # indices beyond 32 bits: another kernel, which copies one of the two
        return max(n_x, n_y) * item_bytes
    partial = _slices(y, weights, groups, rows or y[1]) * 4 * weights if kind == "weight" else 0
    return (n_x + n_y + weights) * item_bytes + partial


def fourier_bytes(*, x: tuple[int, ...], y: tuple[int, ...], weights: int, groups: int) -> int:
    """Return what a convolution by Fourier transform would take: the weight at every frequency of the image.

    cuDNN chooses it seldom and for reasons that no text shows; where it would be large, the bound has to be wide.
    """
    area = weights * groups // max(x[1] * y[1], 1)
    if area <= 1 or groups > 1 or max(x[2:]) > LARGEST_FOURIER:
        return 0
    return x[1] * y[1] * math.prod(x[2:]) * 4


def _slices(y: tuple[int, ...], weights: int, groups: int, rows: int) -> int:
    """Return into how many parts the sum of a weight gradient is cut.

    With few tiles of output there would be too little to do for the GPU, so cuDNN cuts the sum over pixels until
    each multiprocessor has about two blocks.
    """
    tiles = math.ceil(rows / groups / TILE) * math.ceil(weights / max(rows, 1) / TILE) * groups
    pixels = y[0] * math.prod(y[2:])
    slices = min(BLOCKS // max(tiles, 1), pixels // PIXELS_PER_SLICE)
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
