"""Layers and channel schedules that several families share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

ACTIVATIONS = ("relu", "relu_inplace", "elu", "gelu", "silu", "tanh", "leaky_relu", "hardswish", "sigmoid")


def activation(name: str) -> nn.Module:
    """Return the activation module of this name."""
    return {
        "relu": lambda: nn.ReLU(),
        "relu_inplace": lambda: nn.ReLU(inplace=True),
        "elu": lambda: nn.ELU(),
        "gelu": lambda: nn.GELU(),
        "silu": lambda: nn.SiLU(),
        "silu_inplace": lambda: nn.SiLU(inplace=True),
        "tanh": lambda: nn.Tanh(),
        "leaky_relu": lambda: nn.LeakyReLU(0.1),
        "hardswish": lambda: nn.Hardswish(),
        "sigmoid": lambda: nn.Sigmoid(),
    }[name]()


def widths(style: str, first: int, depth: int, *, growing: bool, low: int, high: int) -> list[int]:
    """Return the width of each layer for a shape style of the thesis (section 5.4.4).

    Args:
        style: pyramid, uniform, bottleneck, gradual or hourglass.
        first: Width of the first layer.
        depth: Number of layers.
        growing: Whether pyramid and gradual grow (filters of a CNN) or shrink (neurons of an MLP).
        low: Smallest width.
        high: Largest width.
    """
    last = max(1, depth - 1)
    if style == "pyramid":
        every = max(1, depth // 5)
        raw = [first * 2.0 ** ((i // every) * (1 if growing else -1)) for i in range(depth)]
    elif style == "gradual":
        end = first * 4 if growing else first / 4
        raw = [first + (end - first) * i / last for i in range(depth)]
    elif style == "bottleneck":
        raw = [first / 4 if i % 3 == 1 else float(first) for i in range(depth)]
    elif style == "hourglass":
        raw = [first * (0.2 + 0.8 * abs(2 * i / last - 1)) for i in range(depth)]
    else:
        raw = [float(first)] * depth
    # Multiples of 8, as is common, except below 16.
    return [min(high, max(low, int(w) if w < 16 else int(w) // 8 * 8)) for w in raw]


def run_blocks(blocks: Iterable[nn.Module], x: Tensor, checkpointing: bool, *more: Any) -> Tensor:
    """Run blocks in order, with recomputation of each in backward if requested.

    Args:
        blocks: In order.
        x: Input of the first block.
        checkpointing: Whether each is recomputed in backward.
        more: Further arguments of every block.
    """
    for block in blocks:
        x = checkpoint(block, x, *more, use_reentrant=False) if checkpointing else block(x, *more)
    return x


def dropout(rate: float) -> list[nn.Module]:
    """Return a dropout layer in a list, or an empty list for rate 0."""
    return [nn.Dropout(rate)] if rate else []
