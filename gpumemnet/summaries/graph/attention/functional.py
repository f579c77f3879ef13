"""Attention whose projections run as functions: no row shows them, but the container holds their parameters."""

from __future__ import annotations

import math

from gpumemnet.names import Group
from gpumemnet.summaries.graph.attention.forms import AttentionForm, attend
from gpumemnet.summaries.graph.attention.sites import is_attention
from gpumemnet.summaries.graph.builder import TapeBuilder
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.kinds import KINDS, Kind
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.summaries.texts.settle import is_idle

_WINDOWS = range(2, 33)
"""Sides of a window that a table of relative positions may be for."""
_NARROWEST_HEAD = 8
_MOST_HEADS = 64
_NORMALISED = Kind(group=Group.FUNCTION, saves_input=True)
"""Queries and keys divided by their lengths: the dividends are kept."""


def runs(builder: TapeBuilder, layer: Layer) -> bool:
    """Return whether a row holds weights of queries, keys and values: at least three matrices.

    Args:
        builder: The tape so far.
        layer: A row of an unknown class, or the parameters that a container holds directly. One that
            is cut off must have a table of relative positions: other attention has rows below the depth limit.
    """
    if builder.current < 0 or not layer.runs or not layer.params:
        return False
    name, width = layer.name.split(":")[0], builder.shapes[builder.current][-1]
    if not is_attention(name, name) or layer.params < 3 * width**2:
        return False
    return not layer.is_block or _window(layer.params, width) is not None


def scores(builder: TapeBuilder, layers: tuple[Layer, ...], index: int) -> int | None:
    """Return the row inside such attention that shows its scores, a softmax or dropout over them; None if absent.

    Args:
        builder: The tape so far.
        layers: In running order.
        index: Index of the attention's row.
    """
    own, reads = layers[index], builder.shapes[builder.current]
    for at in range(index + 1, len(layers)):
        inside = layers[at].path[len(own.path) :]
        if layers[at].path[: len(own.path)] != own.path or not inside or inside[0][1] != own.name:
            return None
        shape = builder.scaled(layers[at].output_shapes[0]) if layers[at].output_shapes else ()
        shows = layers[at].kind == "softmax" or kinds.group_of(layers[at].kind) is Group.DROPOUT
        square = len(shape) == 4 and shape[-1] == shape[-2]
        if (
            shows
            and square
            and shape[0] * shape[-1] == math.prod(reads[:-1])
            and not reads[-1] % max(shape[1], 1)
        ):
            return at
    return None


def rows(builder: TapeBuilder, layers: tuple[Layer, ...], index: int) -> set[int]:
    """Add such attention; return the rows inside that it covers.

    Args:
        builder: The tape so far.
        layers: In running order.
        index: Index of the attention's row.
    """
    shown = scores(builder, layers, index)
    if shown is None:
        builder.current = add(builder, layers[index], distance=distances(layers, index))
        return set()
    builder.current = add(builder, layers[index], layers[shown])
    for layer in layers[index + 1 : shown]:  # the bias of distances
        builder.parameters(layer)
    covered = set(range(index + 1, shown + 1))
    dropped = layers[shown + 1 : shown + 2]
    return covered | {shown + 1 for layer in dropped if layer.output_shapes == layers[shown].output_shapes}


def distances(layers: tuple[Layer, ...], index: int) -> tuple[int, int] | None:
    """Return side and heads of windows from a row inside with one number per distance and head (Swin v2).

    Args:
        layers: In running order.
        index: Index of the attention's row.
    """
    own = layers[index]
    for layer in layers[index + 1 :]:
        inside = layer.path[len(own.path) :]
        if layer.path[: len(own.path)] != own.path or not inside or inside[0][1] != own.name:
            return None
        for shape in layer.output_shapes[:1]:
            if len(shape) == 4 and shape[0] == 1 and shape[1] == shape[2] and (shape[3] or 0) <= _MOST_HEADS:
                return ((shape[1] or 0) + 1) // 2, shape[3] or 1
    return None


def add(
    builder: TapeBuilder,
    layer: Layer,
    shown: Layer | None = None,
    distance: tuple[int, int] | None = None,
) -> int:
    """Add the joint projection, the attention and, if its weights exist, the output projection.

    Args:
        builder: The tape so far.
        layer: The row.
        shown: The row inside that shows the scores.
        distance: Side and heads of the windows, if a row inside shows them.

    Returns:
        The output tensor.
    """
    shape = builder.shapes[builder.current]
    width = shape[-1]
    weights = builder.parameters(layer)
    window = _window(layer.params or 0, width) or distance
    if shown is not None:
        windows = builder.scaled(shown.output_shapes[0])
        made = (windows[0], windows[-1], 3 * width)
        joint = builder.operation(KINDS["linear"], builder.current, made, weights)
        cosine = _scales_heads(layer.params or 0, width, windows[1])
        if cosine:
            joint = builder.operation(_NORMALISED, joint, made)
        drops = kinds.group_of(shown.kind) is Group.DROPOUT and not is_idle(shown)
        mixed = attend(
            builder, [joint], AttentionForm(eager=True, dropout=drops, scores=windows, scaled=cosine)
        )
    elif window is None:
        joint = builder.operation(KINDS["linear"], builder.current, (*shape[:-1], 3 * width), weights)
        mixed = attend(builder, [joint], AttentionForm(eager=False))
    else:
        side, heads = window
        tokens = side * side
        count = math.ceil(math.prod(shape[:-1]) / tokens)
        made = (count, tokens, 3 * width)
        joint = builder.operation(KINDS["linear"], builder.current, made, weights)
        if cosine := _scales_heads(layer.params or 0, width, heads):
            joint = builder.operation(_NORMALISED, joint, made)
        table = (count, heads, tokens, tokens)
        mixed = attend(builder, [joint], AttentionForm(eager=True, scores=table, scaled=cosine))
    projected = (layer.params or 0) >= 4 * width * width
    return builder.operation(KINDS["linear"], mixed, shape) if projected else mixed


def _scales_heads(params: int, width: int, heads: int) -> bool:
    """Return whether one scale per head remains apart from projections and biases: cosine attention (Swin v2)."""
    known = ((3, 0), (3, 2), (3, 3), (4, 0), (4, 3), (4, 4))
    return any(params == matrices * width**2 + biases * width + heads for matrices, biases in known)


def _window(params: int, width: int) -> tuple[int, int] | None:
    """Return side and heads of the windows of a table of relative positions: (2 side - 1)^2 rows of heads.

    Args:
        params: Parameters of the projections, with or without biases, and of the table.
        width: Input features.
    """
    for matrices in (4, 3):
        for biases in (matrices, 0):
            rest = params - matrices * width * width - biases * width
            for side in _WINDOWS:
                heads, odd = divmod(rest, (2 * side - 1) ** 2)
                if not odd and 0 < heads < width and not width % heads and width // heads >= _NARROWEST_HEAD:
                    return side, heads
    return None
