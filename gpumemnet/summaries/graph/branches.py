"""Branches of a block that read the same tensor: summed, multiplied or added to the block's input.

`print(model)` lists modules in the order of definition, so its order proves nothing here.
"""

from __future__ import annotations

import re

from gpumemnet.names import Group, Source
from gpumemnet.summaries.graph import conv_inputs, slices
from gpumemnet.summaries.graph.builder import ContainerPath, TapeBuilder
from gpumemnet.summaries.graph.functional_ops import multiplied
from gpumemnet.summaries.graph.tape import Op
from gpumemnet.summaries.texts.kinds import Kind
from gpumemnet.summaries.texts.records import Layer

_SUMMED = r"^(?:RepV[Gg][Gg]Block|MobileOneBlock|RepConv|RepDepthwise|TextNetRep|GhostModuleV3)"
"""Classes whose convolutions and norms all read the block's input and are summed: RepVGG, MobileOne, LCNet v2."""
_BRANCHING = (Group.CONV, Group.BATCHNORM)
_LISTS = ("ModuleList", "Sequential")
_NEAR = 6
"""Maximum distance in operations to the activation of a branch."""


def start(
    builder: TapeBuilder, layer: Layer, kind: Kind, want: tuple[int, ...] | None, out: tuple[int, ...]
) -> int | None:
    """Return the input of the first layer of such a branch: the input of the block.

    Args:
        builder: The tape so far.
        layer: The layer.
        kind: Its behaviour.
        want: Its input's shape; None if the text does not show it.
        out: Its output's shape, batch size applied.

    Returns:
        The tensor; None if no such branch begins here.
    """
    if not layer.path or kind.group not in _BRANCHING or builder.format is Source.MODULE_REPR:
        return None
    at = next((at for at, (cls, _) in enumerate(layer.path) if re.match(_SUMMED, cls)), None)
    if at is None:
        return _norm_apart(builder, kind, out)
    entry = builder.entries.get(layer.path[: at + 1])
    # A norm of the block comes after its convolution.
    if len(layer.path) == at + 1 and kind.group is Group.BATCHNORM:
        return _norm_apart(builder, kind, out)
    inner = at + 2 + (len(layer.path) > at + 1 and layer.path[at + 1][0] in _LISTS)
    inside = len(layer.path) >= inner and layer.path[:inner] in builder.entries
    if entry is None or inside:
        return None
    shape = builder.shapes[entry]
    if want is None:
        return entry if conv_inputs.can_read(layer, shape, out) else None
    return entry if shape == want else None


def _norm_apart(builder: TapeBuilder, kind: Kind, out: tuple[int, ...]) -> int | None:
    """Return the input of a batch norm that directly follows another: a branch without a convolution has only a norm.

    Two norms in a row are useless, so it reads the last convolution's input, or the latest part of the block.
    """
    ops = builder.tape.ops
    if kind.group is not Group.BATCHNORM or len(ops) < 2 or ops[-1].group is not Group.BATCHNORM:
        return None
    if ops[-1].output != builder.current or ops[-2].group is not Group.CONV:
        return None
    read = ops[-2].inputs[0]
    if builder.shapes[read] != out:
        return None
    builder.loose.discard(ops[-1].output)  # summed with it
    return read


def product(builder: TapeBuilder, layer: Layer, want: tuple[int, ...]) -> int:
    """Return the input of a convolution: the last tensor, or its product with a branch that is still unread.

    Within one block two branches of the same shape, one of them activated, are multiplied (StarNet); sums of branches
    are activated as a whole, at a block's end.

    Args:
        builder: The tape so far.
        layer: The convolution.
        want: Shape of its input.
    """
    current, ops = builder.current, builder.tape.ops
    of_slice = slices.of_entry(builder, layer, want) if ops and ops[-1].group is Group.CONV else None
    if of_slice is not None:  # two convolutions in a row, each with its own channels
        return of_slice
    if (total := slices.summed(builder, layer, want)) is not None:
        return total
    entry = _entry(builder, layer.path)
    if builder.format is Source.MODULE_REPR or entry is None or current <= entry:
        return current
    activated = {op.output for op in ops[-_NEAR:] if op.group is Group.ACTIVATION}
    for number in sorted(builder.loose - {current}, reverse=True):
        fits = number > entry and builder.shapes[number] == want == builder.shapes[current]
        if fits and activated & {number, current}:
            return multiplied(builder, want, number, current)
    whole = slices.read(builder, layer, want, begun=True)
    return current if whole is None else multiplied(builder, want, whole, current)


def added(builder: TapeBuilder, block: ContainerPath, current: int) -> int:
    """Return the output of a block: its last tensor, or a new one for the sum with the block's input.

    A sum replaces its last term, unless that is kept: the result of an activation inside the block's last part
    (Darknet, YOLO). An activation after the sum is a row of the block.

    Args:
        builder: The tape so far.
        block: Path of the block, itself included.
        current: The last tensor made in it.
    """
    ops, nested = builder.tape.ops, builder.ended_at == len(builder.tape.ops)
    builder.ended_at = len(ops)
    entry = builder.entries.get(block)
    if entry is None or not nested or not ops or ops[-1].output != current:
        return current
    last = ops[-1]
    if last.group is not Group.ACTIVATION or current not in last.saved:
        return current
    convolutions = sum(op.group is Group.CONV and op.output > entry for op in ops)
    if convolutions < 2 or builder.shapes[entry] != builder.shapes[current]:  # a single one is no block
        return current
    total = builder.tensor(builder.shapes[current], builder.items[current])
    builder.add(Op(inputs=(entry, current), output=total, group=Group.FUNCTION))
    builder.ended_at = len(ops)
    return total


def _entry(builder: TapeBuilder, path: ContainerPath) -> int | None:
    """Return the input of the block around a layer; None if the layer is the first of its block."""
    for depth in (len(path), len(path) - 1):
        if depth > 0 and path[:depth] in builder.entries:
            # torchsummary has no row for a list or the model: rows at that level may be in one.
            holds_blocks = path[depth - 1][0] in (*_LISTS, "")
            return None if holds_blocks else builder.entries[path[:depth]]
    return None
