"""Widths of a linear layer, from its weight's shape or its row."""

from __future__ import annotations

from gpumemnet.summaries.texts.records import Layer

_MOST_FOR_EACH_CHANNEL = 3


def fan_in(params: int | None, width: int | None) -> int:
    """Return the number of input features of a linear layer.

    Args:
        params: Elements of weight and bias; None or 0 if the text does not say.
        width: Output features; None or 0 likewise.

    Returns:
        The features; 0 if unknown. An odd quotient counts a bias, since widths are even.
    """
    if not width or not params:
        return 0
    each, rest = divmod(params, width)
    return each - 1 if not rest and each % 2 else each


def widening(layer: Layer, unknown: float) -> float:
    """Return a linear layer's output width over its input width.

    Args:
        layer: The layer.
        unknown: Result if the ratio is unknown.
    """
    if layer.param_shapes and len(layer.param_shapes[0]) == 2:
        outs, ins = layer.param_shapes[0]
        return outs / max(ins, 1)
    out = layer.output_shapes[0] if layer.output_shapes else ()
    if out and out[-1] and layer.params:
        return out[-1] / max(layer.params // out[-1], 1)
    return unknown


def of_channels(layer: Layer) -> bool:
    """Return whether a row has a few parameters per channel, as norms and scales have: it contains no layers."""
    shape = layer.output_shapes[0] if layer.output_shapes else ()
    channels = max((dim or 0 for dim in (*shape[1:2], *shape[-1:])), default=0)
    return 0 < (layer.params or 0) <= _MOST_FOR_EACH_CHANNEL * channels
