"""Attention whose projections run as functions: no row shows them, but the container's own parameters are theirs."""

from __future__ import annotations

import math

from gpumemnet.graph import attention
from gpumemnet.graph.attention_sites import is_attention
from gpumemnet.graph.builder import TapeBuilder
from gpumemnet.texts import kinds
from gpumemnet.texts.kinds import KINDS
from gpumemnet.texts.records import Layer

_WINDOWS = range(2, 33)
"""Sides of a window that a table of relative positions may be for."""
_NARROWEST_HEAD = 8


def runs(builder: TapeBuilder, layer: Layer) -> bool:
    """Tell whether a row holds the weights of its own queries, keys and values: three matrices at least.

    Args:
        builder: The tape so far.
        layer: Any row; one of an unknown class or the parameters that a container holds itself may be one. One that
            is cut off must have a table of relative positions: other attention has rows below the depth limit.
    """
    unshown = layer.kind == "parameter" or layer.is_block or kinds.find(layer.kind) is None
    if builder.current < 0 or not layer.runs or not layer.params or not unshown:
        return False
    name, width = layer.name.split(":")[0], builder.shapes[builder.current][-1]
    if not is_attention(name, name) or layer.params < 3 * width**2:
        return False
    return not layer.is_block or _window(layer.params, width) is not None


def add(builder: TapeBuilder, layer: Layer) -> int:
    """Add the joint projection, the attention and, if its weights are there, the output projection.

    Args:
        builder: The tape so far.
        layer: The row.

    Returns:
        The output tensor.
    """
    shape = builder.shapes[builder.current]
    width = shape[-1]
    weights = builder.parameters(layer)
    window = _window(layer.params or 0, width)
    if window is None:
        joint = builder.operation(KINDS["linear"], builder.current, (*shape[:-1], 3 * width), weights)
        mixed = attention.attend(builder, [joint], None, eager=False, dropout=False)
    else:
        side, heads = window
        tokens = side * side
        windows = math.ceil(math.prod(shape[:-1]) / tokens)
        joint = builder.operation(KINDS["linear"], builder.current, (windows, tokens, 3 * width), weights)
        scores = (windows, heads, tokens, tokens)
        mixed = attention.attend(builder, [joint], scores, eager=True, dropout=False)
    projected = (layer.params or 0) >= 4 * width * width
    return builder.operation(KINDS["linear"], mixed, shape) if projected else mixed


def _window(params: int, width: int) -> tuple[int, int] | None:
    """Return side and heads of the windows that a table of relative positions is for: (2 side - 1)^2 rows of heads.

    Args:
        params: Of the projections, with or without biases, and of the table.
        width: Features that are read.
    """
    for matrices in (4, 3):
        for biases in (matrices, 0):
            rest = params - matrices * width * width - biases * width
            for side in _WINDOWS:
                heads, odd = divmod(rest, (2 * side - 1) ** 2)
                if not odd and 0 < heads < width and not width % heads and width // heads >= _NARROWEST_HEAD:
                    return side, heads
    return None
