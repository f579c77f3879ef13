"""Blocks determined exactly by their parameters: ConvNeXt's stages, dense layers, shortcuts, layers on windows."""

from __future__ import annotations

from collections.abc import Iterator

from gpumemnet.summaries.collapsed_blocks.layer_templates import Dims, guessed
from gpumemnet.summaries.texts.records import Layer

_KERNEL_AREA = 49
_WIDER = 4
_MOST_BLOCKS = 64
"""Maximum number of blocks in a stage."""


def convnext_blocks(count: int, channels: int) -> tuple[int, bool]:
    """Return the number of ConvNeXt blocks for this many parameters (0 for none), and whether they scale their output.

    A depthwise convolution of 7x7, a norm, and two linear layers with four times the channels between them
    (Liu et al., A ConvNet for the 2020s, 2022).

    Args:
        count: Parameters.
        channels: Channels of the block.
    """
    one = (_KERNEL_AREA + 1 + 2 + 2 * _WIDER * channels + _WIDER + 1) * channels
    for scaled in (True, False):
        times, rest = divmod(count, one + channels * scaled)
        if not rest and 0 < times <= _MOST_BLOCKS:
            return times, scaled
    return 0, False


def convnext(times: int, shape: Dims, activation: str, *, scaled: bool) -> Iterator[Layer]:
    """Return the layers of such blocks.

    Args:
        times: Number of blocks.
        shape: Shape of input and output: batch, channels, sides.
        activation: Kind of activation inside.
        scaled: Whether each scales its addition (LayerScale).
    """
    channels = shape[1]
    last = (shape[0], *shape[2:], channels)
    wide = (*last[:-1], _WIDER * channels)
    for _ in range(times):
        yield guessed("conv2d", shape, shape, (_KERNEL_AREA + 1) * channels)
        yield guessed("layernorm", last, last, 2 * channels)
        yield guessed("linear", last, wide, wide[-1] * (channels + 1))
        yield guessed(activation, wide, wide, 0)
        yield guessed("linear", wide, last, channels * (wide[-1] + 1))
        if scaled:
            yield guessed("layerscale", shape, shape, 0)  # its parameters belong to the block


def dense_layer(count: int, shape: Dims, activation: str) -> tuple[Layer, ...]:
    """Return the layers of a DenseNet layer whose row shows its addition to the input, but not the input.

    A norm and a convolution to four times the growth, a norm and a convolution of 3x3 (Huang et al., Densely Connected
    Convolutional Networks, 2017); the parameters give its number of input channels.

    Args:
        count: Parameters.
        shape: Shape in the row: batch, growth, sides.
        activation: Kind of activation inside.

    Returns:
        Layers with shapes; none if the parameters do not fit such a layer.
    """
    grown = shape[1]
    wide = 4 * grown
    channels, rest = divmod(count - 2 * wide - 9 * wide * grown, 2 + wide)
    if rest or channels < 1:
        return ()
    read, inner = (shape[0], channels, *shape[2:]), (shape[0], wide, *shape[2:])
    return (
        guessed("batchnorm2d", read, read, 2 * channels),
        guessed(activation, read, read, 0),
        guessed("conv2d", read, inner, wide * channels),
        guessed("batchnorm2d", inner, inner, 2 * wide),
        guessed(activation, inner, inner, 0),
        guessed("conv2d", inner, shape, 9 * wide * grown),
    )


def shortcut(count: int, entry: Dims, outs: Dims) -> tuple[Layer, ...]:
    """Return the 1x1 convolution, with its norm, that adds a block's input to its output.

    Nothing follows the norm: only the sum is activated.

    Args:
        count: Parameters of the row.
        entry: Input shape of the block.
        outs: Output shape of its other branch and this row.

    Returns:
        Layers with shapes; none if the parameters do not fit a shortcut between these shapes.
    """
    if len(entry) != len(outs) or len(outs) < 3 or entry == outs:
        return ()
    weights = entry[1] * outs[1]
    extra = {0: 0, outs[1]: outs[1], 2 * outs[1]: 0, 3 * outs[1]: outs[1]}  # nothing, a bias, a norm, both
    if count - weights not in extra:
        return ()
    bias = extra[count - weights]
    convolution = guessed("conv2d", entry, outs, weights + bias)
    norm = count - weights - bias
    return (convolution, guessed("batchnorm2d", outs, outs, norm)) if norm else (convolution,)
