"""Tensors made by functions that no row shows: concatenations, products with a gate, sums over branches."""

from __future__ import annotations

import math

from gpumemnet.names import Group
from gpumemnet.summaries.graph.builder import TapeBuilder
from gpumemnet.summaries.graph.tape import Op
from gpumemnet.summaries.texts.kinds import GELU_SPELT_OUT, KINDS
from gpumemnet.summaries.texts.model_names import spells_gelu_out

_LOOK_BACK = 64
"""Maximum distance in tensors to the start of a branch."""


def recent(builder: TapeBuilder) -> list[int]:
    """Return the numbers of the latest tensors of real values, newest first."""
    last = len(builder.shapes) - 1
    return [n for n in range(last, max(-1, last - _LOOK_BACK), -1) if builder.items[n] in (2, 4)]


def joined(builder: TapeBuilder, shape: tuple[int, ...]) -> int:
    """Add a tensor that a function made of existing ones: a concatenation, a copying reshape, a sum over branches.

    If many vectors are unread and their concatenation is not wanted, they interact in pairs
    (recommenders): stacked, and kept for the matrix product.

    Args:
        builder: The tape so far.
        shape: Shape of the new tensor.
    """
    current = builder.current
    waiting = sorted(n for n in builder.loose if n != current and len(builder.shapes[n]) == 2 == len(shape))
    saved: tuple[int, ...] = ()
    source = current
    flat = len(builder.shapes[current]) < 2
    if len(waiting) > 2 and not flat and sum(builder.shapes[n][1] for n in (*waiting, current)) != shape[1]:
        source = builder.tensor(
            (shape[0], len(waiting) + 1, builder.shapes[current][1]), builder.items[current]
        )
        builder.add(Op(inputs=(*waiting, current), output=source, group=Group.FUNCTION))
        saved, waiting = (source,), []
    made = builder.tensor(shape, builder.items[current])
    builder.add(Op(inputs=(*waiting, source), output=made, saved=saved, group=Group.FUNCTION))
    return made


def gate(builder: TapeBuilder, want: tuple[int, ...]) -> int | None:
    """Multiply by a gate: the last tensor has one value per channel of the wanted one (squeeze and excitation).

    Args:
        builder: The tape so far.
        want: Shape of the other factor.
    """
    last = builder.shapes[builder.current]
    if len(want) < 3 or math.prod(last[1:]) not in (want[1], want[-1]) or not builder.tape.ops:
        return None
    if builder.tape.ops[-1].group not in (Group.ACTIVATION, Group.LINEAR, Group.CONV):
        return None
    for number in recent(builder):
        if builder.shapes[number] == want:
            made = builder.tensor(want, builder.items[number])
            pair = (number, builder.current)
            builder.add(Op(inputs=pair, output=made, saved=pair, group=Group.FUNCTION))
            return made
    return None


def rescaled(builder: TapeBuilder) -> int:
    """Return the product of the last, one-value-per-channel tensor with the latest image of that many channels."""
    channels = builder.shapes[builder.current][1]
    for number in recent(builder):
        shape = builder.shapes[number]
        if len(shape) > 2 and shape[1] == channels and math.prod(shape[2:]) > 1:
            return gate(builder, shape) or builder.current
    return builder.current


def gated_pair(builder: TapeBuilder, want: tuple[int, ...]) -> int:
    """Multiply two branches of a gated feed-forward part (SwiGLU); the other one is still unread.

    Args:
        builder: The tape so far.
        want: Shape of the product.
    """
    current = builder.current
    last = builder.tape.ops[-1] if builder.tape.ops else None
    if (
        last
        and last.group is Group.ACTIVATION
        and builder.shapes[last.inputs[0]] == (*want[:-1], 2 * want[-1])
    ):
        whole = last.inputs[0]
        worked = tuple(number for number in builder.loose if whole < number < current)
        if not worked:
            return multiplied(builder, want, whole, current)
        # A branch used part of the other half, which is joined again.
        half = builder.tensor(want, builder.items[current])
        builder.add(Op(inputs=(*worked, whole), output=half, group=Group.FUNCTION))
        return multiplied(builder, want, half, current)
    makers = {op.output: op.group for op in builder.tape.ops[-6:]}
    for number in range(current - 1, max(-1, current - 6), -1):
        if Group.ACTIVATION not in (makers.get(number), makers.get(current)):
            continue
        if number in builder.loose and builder.shapes[number] == want == builder.shapes[current]:
            return multiplied(builder, want, number, current)
    return current


def activated(builder: TapeBuilder, source: int, out: tuple[int, ...]) -> int:
    """Return the input of a linear layer right after a widening one: a function activated it.

    Two linear layers in a row equal one, so a feed-forward part always has something between them.

    Args:
        builder: The tape so far.
        source: The input found for it.
        out: Shape of its output.
    """
    last = builder.tape.ops[-1] if builder.tape.ops else None
    if last is None or last.group is not Group.LINEAR or last.output != source or len(last.inputs) != 1:
        return source
    before, wide = builder.shapes[last.inputs[0]][-1], builder.shapes[source][-1]
    if 2 * wide < 3 * before or 2 * wide < 3 * out[-1]:
        return source
    kind = GELU_SPELT_OUT if spells_gelu_out(builder.root) else KINDS["gelu"]
    return builder.operation(kind, source, builder.shapes[source])


def multiplied(builder: TapeBuilder, shape: tuple[int, ...], *factors: int) -> int:
    """Multiply tensors; all are kept.

    Args:
        builder: The tape so far.
        shape: Shape of the product.
        factors: The tensors.
    """
    made = builder.tensor(shape, builder.items[factors[-1]])
    builder.add(Op(inputs=factors, output=made, saved=factors, group=Group.FUNCTION))
    return made
