"""Hypotheses on the workspaces of convolutions.

cuDNN's workspace determines a fifth of a CNN's peak and depends on the algorithm its heuristics choose. Two families
explain the measurements to a few MiB: tensor-core kernels that work on channels-last copies of input, output and
weights, and, for the weight gradient of layers with few channels, non-fused Winograd F(4x4, 3x3), which transforms
every 4x4 tile into 6x6 = 36 numbers. Each hypothesis is replayed; the valid one is learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gpumemnet.learning.evaluate.peer_graph import Operation

FLOAT_BYTES = 4
WINOGRAD_FEW_CHANNELS = 256
"""Up to this number, measured weight gradients look like Winograd, above it like channels-last copies."""

Workspace = Callable[[Operation, Operation, int, str], int]
"""(convolution, its input, batch, "forward" | "input" | "weight") -> workspace bytes."""


def _none(conv: Operation, source: Operation, batch: int, phase: str) -> int:
    """Return 0: convolutions without workspace."""
    return 0


def _copies(conv: Operation, source: Operation, batch: int, phase: str) -> int:
    """Return the bytes of channels-last copies of input, output and weights."""
    return FLOAT_BYTES * (batch * (source.elements + conv.elements) + conv.params)


def _winograd(conv: Operation, source: Operation, batch: int, phase: str) -> int:
    """Return the bytes of all transformed 4x4 tiles of input and output, and of the weights."""
    if conv.kernel != 3:
        return 0
    tiles = batch * math.ceil(math.sqrt(conv.area) / 4) ** 2
    return FLOAT_BYTES * 36 * (tiles * (source.channels + conv.channels) + source.channels * conv.channels)


def _winograd_weight(conv: Operation, source: Operation, batch: int, phase: str) -> int:
    """Return `_winograd` only for the weight gradient."""
    return _winograd(conv, source, batch, phase) if phase == "weight" else 0


def _mixed(conv: Operation, source: Operation, batch: int, phase: str) -> int:
    """Return Winograd's workspace for the weight gradient of narrow layers, channels-last copies otherwise."""
    if phase == "weight" and conv.channels <= WINOGRAD_FEW_CHANNELS:
        return _winograd(conv, source, batch, phase)
    return _copies(conv, source, batch, phase)


HYPOTHESES: dict[str, Workspace] = {
    "none": _none,
    "copies": _copies,
    "winograd": _winograd,
    "winograd_weight": _winograd_weight,
    "mixed": _mixed,
}
