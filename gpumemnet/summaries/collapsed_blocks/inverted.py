"""Inverted residual blocks: a widening convolution, a depthwise one, a gate, a narrowing one.

The parts of a block and the widths of block and gate follow from its parameters: few of the usual widths add up to the
exact number. Howard et al., Searching for MobileNetV3, 2019; Tan and Le, EfficientNet, 2019, and EfficientNetV2, 2021
(which widens by a 3x3 convolution and has no depthwise one).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from gpumemnet.summaries.collapsed_blocks.layer_templates import Dims, gate, guessed, norm_act
from gpumemnet.summaries.texts.records import Layer

_AREAS = (9, 25, 49)
"""Kernel areas of depthwise convolutions."""
_MOST = 8
"""Maximum ratio of a block's width to its input's channels."""
_WIDEST_INPUT = 2048
"""Maximum channels of an input; a larger number comes from a broken text, and trying its widths would take long."""
_MULTIPLE = 8
"""Divisor of the usual widths."""
_GATE = 4
"""Usual ratio of the width of the block, or of its input, to the gate's width ..."""
_ABOUT = 1.5
"""... within this factor."""


class InvertedContents(NamedTuple):
    """Contents of a block.

    Attributes:
        wide: Channels inside; 0 if there is only a first convolution.
        first: Area of the first kernel; 0 without a first convolution.
        depth: Area of the depthwise kernel; 0 without one.
        gate: Channels of the gate; 0 without one.
    """

    wide: int
    first: int
    depth: int
    gate: int


@lru_cache(maxsize=4096)
def solve(count: int, first: int, last: int) -> InvertedContents | None:
    """Return the contents of a block of this many parameters; None if no usual ones fit.

    Args:
        count: Parameters.
        first: Channels of the input.
        last: Channels of the output.
    """
    for area in (1, *_AREAS):
        if count == (area * first + 2) * last:
            return InvertedContents(0, area, 0, 0)
    if first > _WIDEST_INPUT:
        return None
    widths = _widths(first)
    found: list[tuple[float, InvertedContents]] = []
    for widens, depth in (*((1, area) for area in _AREAS), (9, 0), *((0, area) for area in _AREAS)):
        each = (
            2 * ((widens > 0) + (depth > 0)) + widens * first + depth + last
        )  # parameters per inner channel
        total = count - 2 * last
        for wide in _near(widths, total, each, first) if widens else (first,):
            rest = total - each * wide
            narrow, remainder = divmod(rest - wide, 2 * wide + 1)  # two convolutions with biases
            if rest and (narrow < 1 or remainder):
                continue
            off = _off(narrow, first, wide) if rest else 0.0
            if off < math.log(_ABOUT):
                off += 0.0 if wide % first == 0 else 0.1
                found.append((off, InvertedContents(wide, widens, depth, narrow if rest else 0)))
    return min(found)[1] if found else None


@lru_cache(maxsize=256)
def _widths(first: int) -> list[int]:
    """Return the usual widths of a block, ascending."""
    widths = {times * first for times in range(1, _MOST + 1)}
    return sorted(widths | set(range(_MULTIPLE, _MOST * first + 1, _MULTIPLE)))


def _near(widths: list[int], total: int, each: int, first: int) -> list[int]:
    """Return the widths that leave parameters for no gate, or for one of a usual size.

    Args:
        widths: Candidates, ascending.
        total: Parameters of the block.
        each: Parameters per inner channel, without a gate.
        first: Channels of the input.
    """
    low, end = 0, bisect_right(widths, total // each)
    high = end
    while low < high:  # a wider block leaves fewer parameters and allows a larger gate
        middle = (low + high) // 2
        wide = widths[middle]
        most = wide + (2 * wide + 1) * _ABOUT / _GATE * max(first, wide)
        low, high = (low, middle) if total - each * wide <= most else (middle + 1, high)
    return widths[low:end]


def layers(inside: InvertedContents, ins: Dims, outs: Dims, activation: str) -> Iterator[Layer]:
    """Return the layers of such a block, with shapes.

    Args:
        inside: Its contents.
        ins: Shape of the input: batch, channels, sides.
        outs: Shape of the output.
        activation: Kind of activation inside.
    """
    wide = inside.wide
    if not wide:
        yield guessed("conv2d", ins, outs, inside.first * ins[1] * outs[1])
        yield from norm_act(outs, activation)
        return
    sides = ins[2:] if inside.depth else outs[2:]
    before, after = (ins[0], wide, *sides), (outs[0], wide, *outs[2:])
    if inside.first:
        yield guessed("conv2d", ins, before, inside.first * ins[1] * wide)
        yield from norm_act(before, activation)
    if inside.depth:
        yield guessed("conv2d", before, after, inside.depth * wide)
        yield from norm_act(after, activation)
    if inside.gate:
        yield from gate(after, inside.gate, activation)
    yield guessed("conv2d", after, outs, wide * outs[1])
    yield guessed("batchnorm2d", outs, outs, 2 * outs[1])


def _off(narrow: int, first: int, wide: int) -> float:
    """Return the log ratio of a gate's channels to the usual number."""
    return min(abs(math.log(max(narrow, 1) * _GATE / channels)) for channels in (first, wide))
