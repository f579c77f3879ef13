"""The image that a network reads where no row shows it: from what its first layers make and the stated input size."""

from __future__ import annotations

import math

from gpumemnet.summaries.graph.builder import TapeBuilder

_STRIDES = (1, 2, 4, 8, 14, 16, 32)
"""Of stems: powers of two, and how far patches are apart."""
_USUAL = {7: 2, 11: 4, 4: 4, 16: 16, 14: 14, 32: 32}
"""Side of a stem's kernel -> its stride; others have none."""
_COLOURS = 3
_IMAGE = 4
_ROUNDED = 0.03
"""What a stem makes of uneven sides is rounded up: 299 pixels become 150, of 300."""


def image(builder: TapeBuilder, channels: int, made: tuple[int, ...], most: int) -> tuple[int, ...] | None:
    """Return the shape of the image that something was made of, by the size that the text states.

    Args:
        builder: The tape so far.
        channels: Of the image.
        made: Shape of what was made of it, batch size applied.
        most: How many times smaller than the image it is at most; a stem leaves no pixel out.

    Returns:
        The largest that fits (labels may be among the inputs); None if the text states no size, or too small a one.
    """
    least, dims = channels * math.prod(made[2:]), len(made) - 2
    stated = builder.stated_input * (1 + _ROUNDED)
    fitting = [stride for stride in _STRIDES if stride <= most and least * stride**dims <= stated]
    return (made[0], channels, *(side * max(fitting) for side in made[2:])) if fitting else None


def coloured(builder: TapeBuilder, made: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of the image with three colours that something was made of; None if the text does not tell.

    Args:
        builder: The tape so far.
        made: Shape of what was made of it, batch size applied.
    """
    return image(builder, _COLOURS, made, _STRIDES[-1]) if len(made) == _IMAGE else None


def usual_image(channels: int, made: tuple[int, ...], kernel: int) -> tuple[int, ...]:
    """Return the shape of the image that a stem read if its stride is the usual one.

    Args:
        channels: Of the image.
        made: Shape of what the stem made, batch size applied.
        kernel: Side of its kernel.
    """
    return (made[0], channels, *(side * _USUAL.get(kernel, 1) for side in made[2:]))
