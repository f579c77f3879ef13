"""Compute workspaces of cuDNN's convolutions: the form of the rules; the numbers are in rules/rules.csv.

bench/estimator/allocator_history.py recorded, on an H200 with PyTorch 2.11 and cuDNN 9.19, the workspaces of 3,120
single convolutions of drawn shapes and of the convolutions of 127 training runs, without held-out models. cuDNN's
tensor core kernels need the channels last and in multiples of 16 bytes. Tensors in PyTorch's default order are first
copied into that order in the workspace: the input, the output (or its gradient) and the weight. No copy is needed if
the convolution can run in place: with few input channels, with a 1x1 kernel, or channel by channel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from gpumemnet.gpu_memory.rules import numbers
from gpumemnet.names import ConvPass

INT32_MAX = (1 << 31) - 1


class ConvolutionPlan(NamedTuple):
    """A convolution as cuDNN sees it; a transposed one is seen as the convolution whose gradient it is.

    Attributes:
        kind: The pass.
        x: Shape of the input.
        y: Shape of the output.
        area: Kernel elements.
        groups: Number of groups.
        item_bytes: Bytes per element.
        strided: Whether a stride is above 1.
    """

    kind: ConvPass
    x: tuple[int, ...]
    y: tuple[int, ...]
    area: int
    groups: int
    item_bytes: int
    strided: bool


@lru_cache(maxsize=4096)
def workspace_bytes(plan: ConvolutionPlan) -> int:
    """Return the workspace of one call for tensors in PyTorch's default order.

    Returns:
        Bytes, by the table of rules.
    """
    return workspace_by(plan, numbers.of("cudnn"))


def workspace_by(plan: ConvolutionPlan, rule: Mapping[str, int]) -> int:
    """Return the workspace by other numbers, for a fit.

    Args:
        plan: The call.
        rule: Numbers by name, as rules/rules.csv has them for "cudnn".

    Returns:
        Bytes.
    """
    if plan.x[1] == plan.groups > 1:
        return 0
    n_x, n_y = math.prod(plan.x), math.prod(plan.y)
    if max(n_x, n_y) > INT32_MAX and plan.area > 1:
        # Indices above 32 bits: another kernel, which copies one of the two.
        return max(n_x, n_y) * plan.item_bytes
    if plan.groups > 1:
        return sum(_grouped(plan)) + _partial_sums(plan, rule)
    if plan.area == 1:
        return _one_by_one(plan, rule)
    x, y, w = _copies(plan, rule)
    if plan.x[1] <= rule["few_channels"]:
        if plan.area <= rule["small_kernel"]:
            return x + y if plan.item_bytes == 2 and plan.kind == ConvPass.WEIGHT else 0
        if plan.kind == ConvPass.FORWARD and plan.y[1] < rule["few_outputs"]:
            return 0
    return x + y + w + _partial_sums(plan, rule)


def depthwise_parts(x: tuple[int, ...], w: tuple[int, ...], item_bytes: int) -> int:
    """Return the workspace of a depthwise weight's gradient for channels last, as recorded for ConvNeXt.

    Args:
        x: Shape of the input.
        w: Shape of the weight.
        item_bytes: Bytes per element.

    Returns:
        Bytes.
    """
    rule = numbers.of("cudnn")
    if math.prod(w[2:]) < rule["depthwise_kernel"]:
        return 0
    parts = rule["depthwise_parts"] * math.prod(w) * 4
    return parts if item_bytes == 2 else parts + rule["depthwise_inputs"] * math.prod(x) * item_bytes


def _copies(plan: ConvolutionPlan, rule: Mapping[str, int]) -> tuple[int, int, int]:
    """Return the bytes of input, output and weight with the channels padded."""
    ins, outs = plan.x[1], plan.y[1]
    unit = max(1, rule["channel_bytes"] // plan.item_bytes)
    # A single channel is in both orders at once.
    padded_ins, padded_outs = (c if c == 1 else -(-c // unit) * unit for c in (ins, outs))
    pixels_x, pixels_y = math.prod(plan.x) // ins, math.prod(plan.y) // outs
    sizes = (pixels_x * padded_ins, pixels_y * padded_outs, padded_ins * padded_outs * plan.area)
    return sizes[0] * plan.item_bytes, sizes[1] * plan.item_bytes, sizes[2] * plan.item_bytes


def _grouped(plan: ConvolutionPlan) -> tuple[int, int, int]:
    """Return the same bytes for groups; uneven ones are padded to a power of two."""
    ins, outs = plan.x[1] // plan.groups, plan.y[1] // plan.groups
    n_x, n_y = math.prod(plan.x) * plan.item_bytes, math.prod(plan.y) * plan.item_bytes
    size = 1 << (max(ins, outs) - 1).bit_length()
    if (ins % 8 or outs % 8) and size <= 2 * min(ins, outs):
        n_x, n_y, ins, outs = n_x * size // ins, n_y * size // outs, size, size
    return n_x, n_y, plan.groups * ins * outs * plan.area * plan.item_bytes


def _one_by_one(plan: ConvolutionPlan, rule: Mapping[str, int]) -> int:
    """Return the workspace of 1x1 kernels: matrix products, which need copies only for strides or alignment."""
    if plan.strided:
        return 0 if _strided_in_place(plan, rule) else _copied(plan, rule) + _partial_sums(plan, rule)
    ins, outs, fp32 = plan.x[1], plan.y[1], plan.item_bytes > 2
    images, pixels = plan.x[0], math.prod(plan.y[2:])
    if plan.kind == ConvPass.WEIGHT:
        # One gradient per image of the batch, summed at the end, if that takes less than copies.
        each = 4 * ins * outs * images
        few_and_large = (
            fp32
            and images < rule["few_images"]
            and ins * outs < rule["few_images_weights"]
            and pixels >= rule["few_images_pixels"]
        )
        percent = rule["image_sums_fp32" if fp32 else "image_sums_16bit"]
        if 100 * each <= percent * _copied(plan, rule) and not few_and_large:
            return each
        return _copied(plan, rule) + (_partial_sums(plan, rule) if pixels > rule["small_image"] else 0)
    if pixels % 2 == 0 or pixels > rule["small_image"]:
        return 0
    # Rows are not aligned.
    copies = not fp32 or (plan.kind == ConvPass.DATA and outs > rule["unaligned_channels"])
    return _copied(plan, rule) if copies else 0


def _strided_in_place(plan: ConvolutionPlan, rule: Mapping[str, int]) -> bool:
    ins, outs, fp32 = plan.x[1], plan.y[1], plan.item_bytes > 2
    if plan.kind == ConvPass.FORWARD:
        return ins <= rule["strided_forward_channels"]
    if plan.kind == ConvPass.DATA:
        return fp32 and ins * outs <= rule["strided_data_weights"]
    return fp32 and ins <= rule["strided_weight_channels"]


def _copied(plan: ConvolutionPlan, rule: Mapping[str, int]) -> int:
    x, y, _ = _copies(plan, rule)
    return x + y


def _partial_sums(plan: ConvolutionPlan, rule: Mapping[str, int]) -> int:
    """Return the bytes of partial sums: one per multiprocessor for a weight gradient of few tiles, else none."""
    if plan.kind != ConvPass.WEIGHT:
        return 0
    ins, outs = plan.x[1] // plan.groups, plan.y[1] // plan.groups
    rows, columns = (
        rule["small_tile"] if channels <= rule["small_tile"] else rule["tile"] for channels in (outs, ins)
    )
    tiles = math.ceil(outs / rows) * math.ceil(ins / columns) * plan.area * plan.groups
    most = blocks = rule["part_blocks_fp32"]
    if plan.item_bytes == 2:
        blocks = rule["part_blocks_16bit"] * (1 if tiles < rule["few_tiles"] else 2)
    pixels = plan.y[0] * math.prod(plan.y[2:])
    parts = min(blocks // tiles, pixels // rule["pixels_per_part"])
    if tiles > 2 * most or (parts < 2 and tiles < most // 2):
        return 0
    return max(1, parts) * min(tiles, most) * rows * columns * 4
