"""What cuDNN's heuristics borrow for a convolution on a Hopper GPU: rules found on recorded allocations.

bench/allocator_history.py recorded, on an H200 with PyTorch 2.11 and cuDNN 9.19, what 3,120 single convolutions of
drawn shapes and the convolutions of 127 training runs borrowed; no held-out model is among them. cuDNN's tensor core
kernels want the channels last and in multiples of 16 bytes. For tensors in PyTorch's default order they first copy
the input, the output (or its gradient) and the weight into that order, in the workspace, unless the convolution can
run in place: with few input channels, with one pixel, or channel by channel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

INT32_MAX = (1 << 31) - 1
CHANNEL_BYTES = 16
"""Channels of a copy are padded to a multiple of it."""
FEW_CHANNELS = 4
"""Pictures: up to so many input channels, small kernels run in place."""
SMALL_AREA = 16
FEW_OUTPUTS = 64
SMALL_PICTURE = 64
"""Pixels; an odd number of them, up to here, and rows are not aligned: a kernel of one pixel copies too."""
MULTIPROCESSORS, HALF_BLOCKS = 132, 120
PIXELS_PER_PART = 512
TILE, SMALL_TILE = 128, 64
"""Sides of a partial sum of a weight gradient, in fp32."""
DEPTHWISE_PARTS, DEPTHWISE_INPUTS, DEPTHWISE_AREA = 256, 8, 49


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A convolution as cuDNN sees it; a transposed one is seen as the one that it is the gradient of.

    Attributes:
        kind: "forward", "data" or "weight".
        x: Shape of the input.
        y: Shape of the output.
        area: Pixels of the kernel.
        groups: Number of groups.
        item_bytes: Bytes per element.
        strided: Whether a stride is above 1.
    """

    kind: str
    x: tuple[int, ...]
    y: tuple[int, ...]
    area: int
    groups: int
    item_bytes: int
    strided: bool


@lru_cache(maxsize=4096)
def workspace_bytes(plan: Plan) -> int:
    """Return the workspace of one call for tensors in PyTorch's default order."""
    if plan.x[1] == plan.groups > 1:
        return 0
    n_x, n_y = math.prod(plan.x), math.prod(plan.y)
    if max(n_x, n_y) > INT32_MAX and plan.area > 1:
        # Indices beyond 32 bits: another kernel, which copies one of the two.
        return max(n_x, n_y) * plan.item_bytes
    if plan.groups > 1:
        return sum(_grouped(plan)) + _partial_sums(plan) * (plan.kind == "weight")
    if plan.area == 1:
        return _one_pixel(plan)
    x, y, w = _copies(plan)
    if plan.x[1] <= FEW_CHANNELS:
        if plan.area <= SMALL_AREA:
            return x + y if plan.item_bytes == 2 and plan.kind == "weight" else 0
        if plan.kind == "forward" and plan.y[1] < FEW_OUTPUTS:
            return 0
    return x + y + w + _partial_sums(plan) * (plan.kind == "weight")


def depthwise_parts(x: tuple[int, ...], w: tuple[int, ...], item_bytes: int) -> int:
    """Return what the gradient of a depthwise weight borrows for channels last, as recorded of ConvNeXt."""
    if math.prod(w[2:]) < DEPTHWISE_AREA:
        return 0
    parts = DEPTHWISE_PARTS * math.prod(w) * 4
    return parts if item_bytes == 2 else parts + DEPTHWISE_INPUTS * math.prod(x) * item_bytes


def _copies(plan: Plan) -> tuple[int, int, int]:
    """Return the bytes of input, output and weight with the channels padded."""
    ins, outs = plan.x[1], plan.y[1]
    unit = CHANNEL_BYTES // plan.item_bytes
    # One channel lies the same first and last.
    padded_ins, padded_outs = (c if c == 1 else -(-c // unit) * unit for c in (ins, outs))
    pixels_x, pixels_y = math.prod(plan.x) // ins, math.prod(plan.y) // outs
    sizes = (pixels_x * padded_ins, pixels_y * padded_outs, padded_ins * padded_outs * plan.area)
    return sizes[0] * plan.item_bytes, sizes[1] * plan.item_bytes, sizes[2] * plan.item_bytes


def _grouped(plan: Plan) -> tuple[int, int, int]:
    """Return the same for groups; uneven ones are padded to one power of two."""
    ins, outs = plan.x[1] // plan.groups, plan.y[1] // plan.groups
    n_x, n_y = math.prod(plan.x) * plan.item_bytes, math.prod(plan.y) * plan.item_bytes
    size = 1 << (max(ins, outs) - 1).bit_length()
    if (ins % 8 or outs % 8) and size <= 2 * min(ins, outs):
        n_x, n_y, ins, outs = n_x * size // ins, n_y * size // outs, size, size
    return n_x, n_y, plan.groups * ins * outs * plan.area * plan.item_bytes


def _one_pixel(plan: Plan) -> int:
    """Kernels of one pixel are matrix products, which need no copy unless a stride or the alignment asks for one."""
    ins, outs, small = plan.x[1], plan.y[1], plan.item_bytes == 2
    x, y, _ = _copies(plan)
    pixels = math.prod(plan.y[2:])
    if plan.strided:
        in_place = {
            "forward": ins <= 64,
            "data": not small and ins * outs <= 40_000,
            "weight": not small and ins <= 80,
        }[plan.kind]
        return 0 if in_place else x + y + _partial_sums(plan) * (plan.kind == "weight")
    if plan.kind == "weight":
        # One gradient for each picture of the batch, summed at the end, if that takes less than copies.
        each = 4 * ins * outs * plan.x[0]
        few_large = not small and plan.x[0] < 64 and ins * outs < 6000 and pixels >= 28 * 28
        if each <= (1.0 if small else 1.5) * (x + y) and not few_large:
            return each
        return x + y + _partial_sums(plan) * (pixels > SMALL_PICTURE)
    summed = ins if plan.kind == "forward" else outs
    unaligned = pixels % 2 == 1 and pixels <= SMALL_PICTURE
    return x + y if unaligned and (small or (plan.kind == "data" and summed > 256)) else 0


def _partial_sums(plan: Plan) -> int:
    """A weight gradient of few tiles is summed in parts, one for each multiprocessor."""
    ins, outs = plan.x[1] // plan.groups, plan.y[1] // plan.groups
    rows, columns = (SMALL_TILE if channels <= SMALL_TILE else TILE for channels in (outs, ins))
    tiles = math.ceil(outs / rows) * math.ceil(ins / columns) * plan.area * plan.groups
    # Found: of 16 bits, nine tiles are summed in 13 parts and 18 in as many; of 32 bits, nine in 14 and 18 in 7.
    blocks = MULTIPROCESSORS if plan.item_bytes > 2 else HALF_BLOCKS if tiles < 10 else 2 * HALF_BLOCKS
    pixels = plan.y[0] * math.prod(plan.y[2:])
    parts = min(blocks // tiles, pixels // PIXELS_PER_PART)
    if tiles > 2 * MULTIPROCESSORS or (parts < 2 and tiles < MULTIPROCESSORS // 2):
        return 0
    return max(1, parts) * min(tiles, MULTIPROCESSORS) * rows * columns * 4
