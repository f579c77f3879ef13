"""Find the tensor that a convolution reads, when the text shows only its output and parameter count."""

from __future__ import annotations

import math
from functools import lru_cache

from gpumemnet.summaries.graph import functional_ops
from gpumemnet.summaries.graph.builder import TapeBuilder
from gpumemnet.summaries.texts.records import Layer

_SIDES = (3, 1, 5, 7, 2, 4, 11, 9, 16)
"""Kernel sizes, most likely first."""


def find(builder: TapeBuilder, layer: Layer, out: tuple[int, ...]) -> int:
    """Find or make the tensor; arguments as for `sources.find`."""
    if not layer.params or len(out) < 3:
        return builder.current
    dims = len(out) - 2
    grows = "transpose" in layer.kind
    last = builder.shapes[builder.current]
    if not grows and len(last) > 1 and math.prod(last[2:]) == 1 < math.prod(out[2:]):
        builder.current = functional_ops.rescaled(builder)
    shape = builder.shapes[builder.current]
    if len(shape) == len(out) and (grows or shape[2] >= out[2]):
        if shape[1] == out[1] and _is_depthwise(layer.params, out[1], dims):
            return builder.current
        if _fits(layer.params, shape[1], out[1], dims, grouped=False):
            return builder.current
    candidates = [builder.current, *functional_ops.recent(builder)]
    for grouped in (False, True):
        for number in candidates:
            shape = builder.shapes[number]
            if len(shape) != len(out) or (shape[2] < out[2] and not grows):
                continue
            if _fits(layer.params, shape[1], out[1], dims, grouped=grouped):
                return number
    fan_in = layer.params // max(out[1], 1)
    side = next(
        (s for s in _SIDES if fan_in // s**dims and (fan_in - fan_in % s**dims) in (fan_in, fan_in - 1)), 1
    )
    channels = max(fan_in // side**dims, 1)
    last = builder.shapes[builder.current]
    if len(last) > 1 and channels <= last[1]:
        return builder.current
    return functional_ops.joined(builder, (out[0], channels, *out[2:]))


def can_read(layer: Layer, shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Return whether a convolution, or a layer that keeps the shape, can read a tensor.

    Args:
        layer: The row.
        shape: Shape of the tensor.
        out: Shape of the layer's output, batch size applied.
    """
    if shape == out:
        return True
    if len(shape) != len(out) or not layer.params:
        return False
    return any(
        _fits(layer.params, shape[1], out[1], len(out) - 2, grouped=grouped) for grouped in (False, True)
    )


@lru_cache(maxsize=4096)
def _is_depthwise(params: int, channels: int, dims: int) -> bool:
    areas = {side**dims for side in _SIDES if side > 1}
    return params in {channels * area for area in areas} | {channels * (area + 1) for area in areas}


@lru_cache(maxsize=4096)
def _fits(params: int, channels: int, out_channels: int, dims: int, *, grouped: bool) -> bool:
    """Return whether a convolution of these channel counts can have this many parameters (square kernels)."""
    for weights in (params, params - out_channels):
        if weights <= 0 or not out_channels or weights % out_channels:
            continue
        fan_in = weights // out_channels
        for side in _SIDES:
            rest, remainder = divmod(fan_in, side**dims)
            if not remainder and rest and (rest == channels or (grouped and channels % rest == 0)):
                return True
    return False
