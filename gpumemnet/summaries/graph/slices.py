"""Slices: a layer that reads part of the features of a wider tensor (split, chunk), which is kept whole.

A gated block makes all branches with one wide projection and gives each its features. No row shows that.
"""

from __future__ import annotations

import math

from gpumemnet.names import Group, Source
from gpumemnet.summaries.graph.builder import TapeBuilder
from gpumemnet.summaries.graph.tape import Op
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import Layer

_MAKERS = (Group.LINEAR, Group.CONV, Group.ACTIVATION)


def read(builder: TapeBuilder, layer: Layer, want: tuple[int, ...], *, begun: bool = False) -> int | None:
    """Return the wider tensor that a layer reads a slice of, and record how much of it is read.

    It was made by a projection in the same block, activated or not, and only slices of it have been read.

    Args:
        builder: The tape so far.
        layer: The layer that reads the slice, or its result.
        want: Shape of the slice, batch size applied.
        begun: Only if slices of the tensor were read before.

    Returns:
        The tensor; None if no projection of the block made as many rows of more features.
    """
    entry = _entry(builder, layer)
    if builder.format is Source.MODULE_REPR or entry is None or len(want) < 3:
        return None
    for op in reversed(builder.tape.ops):
        if op.output <= entry:
            return None
        if op.group in _MAKERS and _fits(builder, op, want, begun=begun):
            taken = builder.sliced.get(op.output, 0)
            builder.sliced[op.output] = taken + _features(builder, op.output, want)
            return op.output
    return None


def of_entry(builder: TapeBuilder, layer: Layer, want: tuple[int, ...]) -> int | None:
    """Return a tensor that a convolution reads some channels of: the block's input, whose other channels go elsewhere.

    ShuffleNet v2 and FasterNet pass them on; mixed convolutions give each of several its own.

    Args:
        builder: The tape so far.
        layer: The layer.
        want: Shape of what it reads, batch size applied.

    Returns:
        The tensor; None if that is not known to be one.
    """
    if not layer.path or builder.format is Source.MODULE_REPR or kinds.group_of(layer.kind) is not Group.CONV:
        return None
    entry = builder.entries.get(layer.path)
    whole = builder.current if entry is None else entry
    taken = builder.parted.get(whole, 0)
    if (entry is not None and not taken) or not _part(builder.shapes[whole], taken, want):
        return None
    builder.parted[whole] = taken + want[1]
    return whole


def summed(builder: TapeBuilder, layer: Layer, want: tuple[int, ...]) -> int | None:
    """Return the sum of the last tensor with the next slice of one that a list of convolutions reads (Res2Net).

    Args:
        builder: The tape so far.
        layer: A convolution of the list.
        want: Shape of what it reads, batch size applied.

    Returns:
        The sum; None if no slice is left, or the layer is in no list.
    """
    if len(layer.path) < 2 or layer.path[-1][0] != "ModuleList":
        return None
    entry = builder.entries.get(layer.path[:-1], builder.current)
    for whole, taken in builder.parted.items():
        if whole > entry and _part(builder.shapes[whole], taken, want):
            builder.parted[whole] = taken + want[1]
            total = builder.tensor(want, builder.items[builder.current])
            builder.add(Op(inputs=(builder.current, whole), output=total, group=Group.FUNCTION))
            return total
    return None


def _part(made: tuple[int, ...], taken: int, want: tuple[int, ...]) -> bool:
    """Return whether that many channels of a partly read image are left."""
    if len(made) != len(want) or len(want) < 3 or (made[0], *made[2:]) != (want[0], *want[2:]):
        return False
    return made[1] > want[1] and taken + want[1] <= made[1] and (taken > 0 or not made[1] % want[1])


def by_channel(layer: Layer, want: tuple[int, ...]) -> bool:
    """Return whether a layer is a depthwise convolution: a dense one has a weight for each pair of channels.

    Args:
        layer: The layer.
        want: Shape of what it reads, batch size applied.
    """
    if kinds.group_of(layer.kind) is not Group.CONV:
        return False
    shape = layer.output_shapes[0] if layer.output_shapes else ()
    made = shape[1] if len(shape) == len(want) > 2 else None
    return bool(layer.params and made) and made == want[1] and (layer.params or 0) < want[1] ** 2


def _fits(builder: TapeBuilder, op: Op, want: tuple[int, ...], *, begun: bool) -> bool:
    """Return whether a slice of this shape is left of a projection's output."""
    taken = builder.sliced.get(op.output, 0)
    if not taken and (begun or op.output not in builder.loose):
        return False
    features = _features(builder, op.output, want)
    if not features:
        return False
    width = builder.shapes[op.output][1 if op.group is Group.CONV else -1]
    rows = builder.elements[op.output] // max(width, 1)
    return 0 < features < width - taken + bool(taken) and rows * features == math.prod(want)


def _features(builder: TapeBuilder, number: int, want: tuple[int, ...]) -> int:
    """Return the number of a projection's output features with the wanted shape, channels first or last; 0 if none."""
    made = builder.shapes[number]
    if len(made) < 3 or made[0] != want[0]:
        return 0
    for rows in (math.prod(made[1:-1]), math.prod(made[2:])):
        for features, others in ((want[-1], want[1:-1]), (want[1], want[2:])):
            if rows == math.prod(others):
                return features
    return 0


def _entry(builder: TapeBuilder, layer: Layer) -> int | None:
    """Return the input of the innermost started container around a layer."""
    inside = (builder.entries.get(layer.path[:depth]) for depth in range(len(layer.path), 0, -1))
    return next((number for number in inside if number is not None), None)
