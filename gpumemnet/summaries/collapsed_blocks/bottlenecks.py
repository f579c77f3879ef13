"""Bottlenecks: a convolution that narrows, one of 3x3, perhaps in groups, a gate, one that widens, and a shortcut.

A block's width, groups and gate follow from its parameters, as few of the usual values add up to the exact number.
Xie et al., Aggregated Residual Transformations, 2017; Hu et al., Squeeze-and-Excitation Networks, 2018; Radosavovic et
al., Designing Network Design Spaces, 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from gpumemnet.summaries.collapsed_blocks.layer_templates import Dims, gate, guessed, norm_act
from gpumemnet.summaries.texts.records import Layer

_AREA = 9
_NARROWER = (4, 2, 1)
"""Ratios of output channels to inner channels."""
_GROUP_WIDTHS = (4, 8, 16, 32, 64, 1, 24, 40, 48, 56, 112, 128, 232, 264)
"""Usual channels of a group in ResNeXt and RegNet."""
_GATES = (4, 8, 16)
"""Ratios of the gated tensor's, or the block's input, channels to the gate's."""


class BottleneckContents(NamedTuple):
    """Contents of a block.

    Attributes:
        wide: Channels inside.
        group: Channels of a group of the middle convolution.
        gate: Channels of the gate; 0 without one.
        gates_output: Whether the gate scales the block's output, not an inner tensor.
        shortcut: Whether the input goes through a separate convolution.
    """

    wide: int
    group: int
    gate: int
    gates_output: bool
    shortcut: bool


@lru_cache(maxsize=4096)
def solve(count: int, first: int, last: int) -> BottleneckContents | None:
    """Return the contents of a block of this many parameters; None if no usual ones fit.

    Args:
        count: Parameters.
        first: Channels of the input.
        last: Channels of the output.
    """
    gated: list[BottleneckContents] = []
    for narrower in _NARROWER:
        wide = last // narrower
        groups = (wide, *(width for width in _GROUP_WIDTHS if width < wide and wide % width == 0))
        for shortcut in (False, True):
            outer = (first + last + 4) * wide + 2 * last + shortcut * (first + 2) * last
            for group in groups:
                rest = count - outer - _AREA * wide * group
                if not rest:
                    return BottleneckContents(wide, group, 0, False, shortcut)
                for at_output, scaled in ((False, wide), (True, last)):
                    channels, remainder = divmod(rest - scaled, 2 * scaled + 1)
                    if not remainder and channels > 0 and _usual(channels, first, scaled):
                        gated.append(BottleneckContents(wide, group, channels, at_output, shortcut))
    return gated[0] if gated else None


def layers(inside: BottleneckContents, ins: Dims, outs: Dims, activation: str) -> Iterator[Layer]:
    """Return the layers of such a block, with shapes.

    Args:
        inside: Its contents.
        ins: Shape of the input: batch, channels, sides.
        outs: Shape of the output.
        activation: Kind of activation inside.
    """
    wide, first, last = inside.wide, ins[1], outs[1]
    before, after = (ins[0], wide, *ins[2:]), (outs[0], wide, *outs[2:])
    yield guessed("conv2d", ins, before, first * wide)
    yield from norm_act(before, activation)
    yield guessed("conv2d", before, after, _AREA * wide * inside.group)
    yield from norm_act(after, activation)
    if inside.gate and not inside.gates_output:
        yield from gate(after, inside.gate, activation)
    yield guessed("conv2d", after, outs, wide * last)
    yield guessed("batchnorm2d", outs, outs, 2 * last)
    if inside.gate and inside.gates_output:
        yield from gate(outs, inside.gate, activation)
    if inside.shortcut:
        yield guessed("conv2d", ins, outs, first * last)
        yield guessed("batchnorm2d", outs, outs, 2 * last)
    yield guessed(activation, outs, outs, 0)


def _usual(channels: int, first: int, scaled: int) -> bool:
    """Return whether a gate has about the usual number of channels."""
    return any(
        math.isclose(channels * times, known, rel_tol=0.15) for times in _GATES for known in (first, scaled)
    )
