"""Dropouts that drop nothing: rate 0, as most published vision models have it."""

from __future__ import annotations

from dataclasses import replace

from gpumemnet.names import Group
from gpumemnet.texts import kinds
from gpumemnet.texts.records import Layer, ModelSummary


def without_idle(summary: ModelSummary) -> ModelSummary:
    """Mark dropouts that do nothing, for which PyTorch runs no kernel and keeps no mask.

    `print(model)` shows the rate. Other texts do not; but timm's blocks, whose rates are 0 unless asked for, put an
    Identity wherever an option is off, beside their dropouts.
    """
    beside = {layer.path for layer in summary.layers if layer.kind == "identity"}
    layers = tuple(
        replace(layer, args={**layer.args, "p": 0.0}) if _idle(layer, beside) else layer
        for layer in summary.layers
    )
    return replace(summary, layers=layers)


def is_idle(layer: Layer) -> bool:
    """Tell whether a layer is a dropout of rate 0."""
    return kinds.group_of(layer.kind) is Group.DROPOUT and layer.args.get("p") == 0.0


def _idle(layer: Layer, beside: set[tuple[tuple[str, str], ...]]) -> bool:
    if kinds.group_of(layer.kind) is not Group.DROPOUT or "p" in layer.args:
        return False
    return layer.path in beside and bool(layer.path)
