"""Workspace of a weight's gradient that cuDNN takes by Fourier transform, for tensors in PyTorch's default order.

Input and gradient are transformed whole, each with a copy in another order, next to a copy of the gradient. Single
convolutions recorded in gpumemnet/data/history_h200.jsonl.xz (H200, cuDNN 9.19) show it to the byte for 20 of 513
gradients of kernels above 1x1 in fp32 with strides of 1: for all six in the range of 3x3 kernels, and for four of
thirteen in that of 5x5 kernels, for which no rule was found.
"""

from __future__ import annotations

import math
from typing import NamedTuple

COMPLEX_BYTES = 8


class Range(NamedTuple):
    """Gradients of one kernel.

    Attributes:
        images: Least batch.
        outputs: Least and most output channels.
        inputs_per_output: Least input channels for each output channel.
        sides: Least and most pixels of an output's sides.
    """

    images: int
    outputs: tuple[int, int]
    inputs_per_output: float
    sides: tuple[int, int]


Ranges = dict[tuple[int, ...], Range]
"""By kernel."""
CHOSEN: Ranges = {(3, 3): Range(images=48, outputs=(17, 64), inputs_per_output=2, sides=(28, 36))}
"""cuDNN takes it. DenseNet-161 (192 to 48 channels of 28x28), whose runs were not looked at before, does with 64 images
and not with 16; below 28 pixels no rule was found, and it takes little there."""
POSSIBLE: Ranges = {(5, 5): Range(images=32, outputs=(17, 96), inputs_per_output=0.25, sides=(16, 75))}
"""cuDNN may take it."""


def fourier_bytes(x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...]) -> int:
    """Return the workspace in fp32.

    Args:
        x: Shape of the input.
        w: Shape of the weight.
        y: Shape of the output.
    """
    height, width = (1 << (side + kernel - 2).bit_length() for side, kernel in zip(y[2:], w[2:]))
    planes = x[0] * (x[1] + y[1])
    return 2 * planes * height * (width // 2 + 1) * COMPLEX_BYTES + math.prod(y) * 4


def within(ranges: Ranges, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """Tell whether a gradient in fp32 with strides of 1 and one group lies in the range of its kernel.

    Args:
        ranges: By kernel.
        x: Shape of the input.
        w: Shape of the weight.
        y: Shape of the output.
    """
    found = ranges.get(w[2:])
    return found is not None and (
        x[0] >= found.images
        and found.outputs[0] <= y[1] <= found.outputs[1]
        and x[1] >= found.inputs_per_output * y[1]
        and found.sides[0] <= min(y[2:])
        and max(y[2:]) <= found.sides[1]
    )
