"""Multilayer perceptrons (thesis Table 5.2, and wider ones)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch import nn

from gpumemnet.learning.dataset.config import TensorSpec
from gpumemnet.learning.dataset.draw import Draw, Drawn
from gpumemnet.learning.dataset.models.layers import activation, dropout, widths

STYLES = ("pyramid", "uniform", "bottleneck", "gradual", "hourglass")
LOSS = "cross_entropy"


def draw(d: Draw, style: str) -> Drawn:
    """Draw widths, depth, normalization, dropout and activation; arguments as for `cnn.draw`."""
    wide = d.chance(0.45)
    depth = d.integer(2, 12)
    first = d.log_integer(1024, 24576, 8) if wide else d.log_integer(8, 4096, 4)
    arch: dict[str, Any] = {
        "features": d.log_integer(4, 4096),
        "classes": d.log_integer(2, 1024),
        "widths": widths(style, first, depth, growing=False, low=4, high=24576),
        "batch_norm": d.chance(0.4),
        "layer_norm": False,
        "dropout": d.choice((0.0, 0.1, 0.25, 0.5)),
        "activation": d.choice(
            ("relu", "relu_inplace", "elu", "gelu", "silu", "tanh", "leaky_relu", "sigmoid")
        ),
        "bias": d.chance(0.9),
    }
    arch["layer_norm"] = not arch["batch_norm"] and d.chance(0.2)
    per_layer = 2 + (arch["batch_norm"] or arch["layer_norm"]) + (arch["dropout"] > 0)
    sizes = [arch["features"], *arch["widths"]]
    params = sum(a * b for a, b in pairwise(sizes))
    limits = (64, 262144) if wide else (4, 16384)
    elements = per_layer * sum(arch["widths"]) + arch["features"]
    return Drawn(arch=arch, elements_per_sample=elements, params=params, batch_range=limits)


def build(style: str, arch: dict[str, Any]) -> nn.Module:
    """Build the perceptron as one nn.Sequential; arguments as for `cnn.build`."""
    layers: list[nn.Module] = []
    width = arch["features"]
    for out in arch["widths"]:
        layers.append(nn.Linear(width, out, bias=arch["bias"]))
        if arch["batch_norm"]:
            layers.append(nn.BatchNorm1d(out))
        if arch["layer_norm"]:
            layers.append(nn.LayerNorm(out))
        layers.append(activation(arch["activation"]))
        layers += dropout(arch["dropout"])
        width = out
    return nn.Sequential(*layers, nn.Linear(width, arch["classes"]))


def inputs(arch: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the shapes of the inputs."""
    return (TensorSpec(kind="float", shape=(arch["features"],)),)


def target(arch: dict[str, Any]) -> TensorSpec:
    """Return the shape of the target."""
    return TensorSpec(kind="int", shape=(), high=arch["classes"])
