"""Rows inside attention that work per head: they show the number of heads.

Norms of queries and keys, and their placeholders (timm), read [batch, heads, tokens, width of a head]; some models fold
heads into the batch, which no fused form takes. A layer that maps the distances of tokens to one score per head shows
[batch, tokens, tokens, heads]. Convolutions may pool queries, keys and values after their projection.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gpumemnet.names import Group
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import Layer, Shape

ContainerPath = tuple[tuple[str, str], ...]
_MOST_HEADS = 128
_TOKENS = 3
"""Dimensions of a batch of tokens."""


class Heads(NamedTuple):
    """Head information of such a row.

    Attributes:
        number: Number of heads.
        folded: Heads are part of the batch.
    """

    number: int
    folded: bool = False


def find(layers: tuple[Layer, ...], path: ContainerPath, projections: tuple[int, ...]) -> Heads | None:
    """Return what an attention module's rows show of its heads; None if nothing.

    Args:
        layers: In running order.
        path: Path of the attention module.
        projections: Indices of its layers for queries, keys and values.
    """
    shapes = layers[projections[0]].output_shapes
    if not shapes or len(shapes[0]) != _TOKENS:
        return None
    for index in range(projections[0] + 1, len(layers)):
        layer = layers[index]
        if layer.path[: len(path)] != path:
            return None
        for shape in layer.output_shapes[:1]:
            if len(shape) == _TOKENS and kinds.group_of(layer.kind) is Group.LINEAR:
                continue  # on all heads
            if (heads := _heads(shape, shapes[0], joint=len(projections) == 1)) is not None:
                return heads
    return None


def pooled(layers: tuple[Layer, ...], path: ContainerPath, joint: int) -> tuple[range, ...]:
    """Return the rows on queries, keys and values of a joint projection; a convolution begins each branch.

    Args:
        layers: In running order.
        path: Path of the attention module.
        joint: Index of the joint projection.

    Returns:
        Three branches (MViT pools queries, keys and values); empty if there are none.
    """
    starts: list[int] = []
    end = joint + 1
    while end < len(layers) and layers[end].path[: len(path)] == path and not _projects(layers[end]):
        if kinds.group_of(layers[end].kind) is Group.CONV:
            starts.append(end)
        end += 1
    shapes = [
        shape for at in starts for shape in (*layers[at].input_shapes[:1], *layers[at].output_shapes[:1])
    ]
    shown = all(layers[at].output_shapes for at in starts) and all(len(shape) == 4 for shape in shapes)
    if len(starts) != 3 or starts[0] != joint + 1 or not shown:
        return ()
    return tuple(range(start, stop) for start, stop in zip(starts, [*starts[1:], end], strict=True))


def unpooled(part: int, made: tuple[int, ...]) -> tuple[int, ...]:
    """Return the image of queries, keys or values that such a convolution reads: as many rows as columns.

    Args:
        part: Number of elements.
        made: Output shape of the convolution, batch size applied, heads folded into the batch.
    """
    side = math.isqrt(part // max(made[0] * made[1], 1))
    return (made[0], made[1], side, side)


def _projects(layer: Layer) -> bool:
    return kinds.group_of(layer.kind) is Group.LINEAR or layer.is_block


def _heads(shape: Shape, made: Shape, *, joint: bool) -> Heads | None:
    """Compare a row's shape with [batch, tokens, features] of the first projection."""
    batch, tokens, features = (dim or 1 for dim in made)
    dims = tuple(dim or 1 for dim in shape)
    if len(dims) == 4 and dims[:3] == (batch, tokens, tokens) and 1 < dims[3] <= _MOST_HEADS < tokens:
        return Heads(dims[3])
    width = features // 3 if joint else features
    if len(dims) == 4 and (dims[0], dims[2], dims[1] * dims[3]) == (batch, tokens, width) and dims[1] < width:
        return Heads(dims[1])
    # torchsummary shows neither batch nor the heads folded into it.
    count = width // max(dims[-1], 1) if shape[0] is None else dims[0] // batch
    if len(dims) == 3 and shape[0] is None:
        fits = dims[1] == tokens and width == count * dims[2] and 1 < count <= _MOST_HEADS
        return Heads(count, folded=True) if fits else None
    if len(dims) == 3 and (dims[0], dims[1], count * dims[2]) == (count * batch, tokens, width) and count > 1:
        return Heads(count, folded=True)
    return None
