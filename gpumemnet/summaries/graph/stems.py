"""Infer an image that no row shows, from the output of the first layers and the stated input size."""

from __future__ import annotations

import math

from gpumemnet.summaries.graph.builder import TapeBuilder

_STRIDES = (1, 2, 4, 8, 14, 16, 32)
"""Strides of stems: powers of two, and distances between patches."""
_USUAL = {7: 2, 11: 4, 4: 4, 16: 16, 14: 14, 32: 32}
"""Side of a stem's kernel -> its stride; others have none."""
_COLOURS = 3
_IMAGE = 4
_ROUNDED = 0.03
"""A stem rounds uneven sides up: 299 pixels become 150, as 300 would."""


def image(builder: TapeBuilder, channels: int, made: tuple[int, ...], most: int) -> tuple[int, ...] | None:
    """Return the shape of the image behind an output, by the size that the text states.

    Args:
        builder: The tape so far.
        channels: Channels of the image.
        made: Shape of what was made of it, batch size applied.
        most: Largest factor by which it is smaller than the image; a stem skips no pixel.

    Returns:
        The largest that fits (labels may be among the inputs); None if the text states no size, or one too small.
    """
    least, dims = channels * math.prod(made[2:]), len(made) - 2
    stated = builder.stated_input * (1 + _ROUNDED)
    fitting = [stride for stride in _STRIDES if stride <= most and least * stride**dims <= stated]
    return (made[0], channels, *(side * max(fitting) for side in made[2:])) if fitting else None


def coloured(builder: TapeBuilder, made: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of the three-colour image behind an output; None if the text does not show it.

    Args:
        builder: The tape so far.
        made: Shape of what was made of it, batch size applied.
    """
    return image(builder, _COLOURS, made, _STRIDES[-1]) if len(made) == _IMAGE else None


def usual_image(channels: int, made: tuple[int, ...], kernel: int) -> tuple[int, ...]:
    """Return the shape of a stem's input image if the stem has the usual stride.

    Args:
        channels: Channels of the image.
        made: Shape of what the stem made, batch size applied.
        kernel: Side of its kernel.
    """
    return (made[0], channels, *(side * _USUAL.get(kernel, 1) for side in made[2:]))
