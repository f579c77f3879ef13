"""Layers of classes named after them: BnActConv2d, Conv2dNormActivation, BasicConv2d, SeparableConv2d."""

from __future__ import annotations

import re

from gpumemnet.summaries.collapsed_blocks.layer_templates import Dims, guessed
from gpumemnet.summaries.texts.records import Layer

_WORDS = re.compile(r"bn|norm|act|relu|conv")
_NORMS = ("bn", "norm")
_AREAS = (9, 25, 49, 1)
"""Kernel areas of depthwise convolutions."""


def inside(kind: str, count: int, ins: Dims, outs: Dims, activation: str) -> tuple[Layer, ...]:
    """Return the layers in the order of the name's words.

    Args:
        kind: Class name of the block, lower case.
        count: Its parameters.
        ins: Shape of the input: batch, channels, sides.
        outs: Shape of the output.
        activation: Kind of activation inside.

    Returns:
        Layers with shapes; none if the name or the parameters do not fit such layers.
    """
    if kind.startswith("separableconv"):
        return _separable(count, ins, outs, activation)
    words = _WORDS.findall(kind)
    if words == ["conv"] and kind.startswith("basicconv"):
        words = ["conv", "norm", "act"]
    if words.count("conv") != 1 or len(words) < 2:
        return ()
    shapes = [outs if "conv" in words[: at + 1] else ins for at in range(len(words))]
    norms = sum(2 * shape[1] for word, shape in zip(words, shapes, strict=True) if word in _NORMS)
    if count - norms < outs[1]:
        return ()
    found = []
    for word, shape in zip(words, shapes, strict=True):
        if word == "conv":
            found.append(guessed("conv2d", ins, outs, count - norms))
        elif word in _NORMS:
            found.append(guessed("batchnorm2d", shape, shape, 2 * shape[1]))
        else:
            found.append(guessed(activation, shape, shape, 0))
    return tuple(found)


def _separable(count: int, ins: Dims, outs: Dims, activation: str) -> tuple[Layer, ...]:
    """Return a depthwise and a pointwise convolution, each followed by a norm if the parameters indicate it."""
    first, last = ins[1], outs[1]
    between = (*ins[:2], *outs[2:])
    after = (guessed("batchnorm2d", outs, outs, 2 * last), guessed(activation, outs, outs, 0))
    norm = (guessed("batchnorm2d", between, between, 2 * first),)
    for area in _AREAS:
        convolutions = area * first, first * last
        deep = guessed("conv2d", ins, between, convolutions[0])
        point = guessed("conv2d", between, outs, convolutions[1])
        rest = count - sum(convolutions)
        if rest in (0, first + last):
            return deep, point
        if rest == 2 * last:
            return deep, point, *after
        if rest == 2 * (first + last):
            return deep, *norm, point, *after
    return ()
