"""Layers of guessed blocks, and parts that several templates of hidden blocks share."""

from __future__ import annotations

from collections.abc import Iterator

from gpumemnet.summaries.texts.records import Layer

Dims = tuple[int, ...]


def guessed(
    kind: str, ins: Dims, outs: Dims, params: int, path: tuple[tuple[str, str], ...] = (), name: str = ""
) -> Layer:
    """Return a layer that the text does not show; its shapes include the batch size.

    Args:
        kind: Kind, as in the table of kinds.
        ins: Shape of the input.
        outs: Shape of the output.
        params: Parameters; a negative number counts as 0.
        path: Containers around it.
        name: Suffix to the kind, for messages.
    """
    return Layer(
        kind=kind,
        name=f"{kind}{name}",
        path=path,
        input_shapes=(ins,),
        output_shapes=(outs,),
        params=max(params, 0),
    )


def norm_act(shape: Dims, activation: str) -> Iterator[Layer]:
    """Return a batch norm and an activation.

    Args:
        shape: Shape of input and output: batch, channels, sides.
        activation: Kind of the activation.
    """
    yield guessed("batchnorm2d", shape, shape, 2 * shape[1])
    yield guessed(activation, shape, shape, 0)


def gate(shape: Dims, channels: int, activation: str) -> Iterator[Layer]:
    """Return a gate that scales channels by their means, through two 1x1 convolutions.

    Args:
        shape: Shape of the gated tensor: batch, channels, sides.
        channels: Channels between the convolutions.
        activation: Kind of the activation between them.
    """
    wide = shape[1]
    point = (*shape[:2], *(1 for _ in shape[2:]))
    narrow = (shape[0], channels, *point[2:])
    yield guessed("adaptiveavgpool2d", shape, point, 0)
    yield guessed("conv2d", point, narrow, channels * (wide + 1))
    yield guessed(activation, narrow, narrow, 0)
    yield guessed("conv2d", narrow, point, wide * (channels + 1))
    yield guessed("sigmoid", point, point, 0)
    yield guessed("multiply", shape, shape, 0)
