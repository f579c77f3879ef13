"""The layers of guessed blocks, and what several kinds of blocks have, for the templates of hidden blocks."""

from __future__ import annotations

from collections.abc import Iterator

from gpumemnet.summaries.texts.records import Layer

Dims = tuple[int, ...]


def guessed(
    kind: str, ins: Dims, outs: Dims, params: int, path: tuple[tuple[str, str], ...] = (), name: str = ""
) -> Layer:
    """Return a layer that the text does not show; the batch size is applied to its shapes already.

    Args:
        kind: As the table of kinds has it.
        ins: Shape of the input.
        outs: Shape of the output.
        params: Parameters; less than none counts as none.
        path: Containers around it.
        name: Added to the kind, for messages.
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
        shape: What they read and make: batch, channels, sides.
        activation: Kind of the activation.
    """
    yield guessed("batchnorm2d", shape, shape, 2 * shape[1])
    yield guessed(activation, shape, shape, 0)


def gate(shape: Dims, channels: int, activation: str) -> Iterator[Layer]:
    """Return a gate that scales channels by their means, through two convolutions of one pixel.

    Args:
        shape: What it scales: batch, channels, sides.
        channels: Between the convolutions.
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
