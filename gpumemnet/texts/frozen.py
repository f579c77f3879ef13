"""Which layers are frozen, where the text only says how many parameters are."""

from __future__ import annotations

from dataclasses import replace

from gpumemnet.names import Source
from gpumemnet.texts.records import ModelSummary


def freeze_first(summary: ModelSummary) -> ModelSummary:
    """Mark the first layers as frozen, as in fine-tuning, up to the number of frozen parameters that is stated."""
    total, trainable = summary.total_params, summary.trainable_params
    marked = any(not layer.trainable for layer in summary.layers)
    if total is None or trainable is None or marked or summary.format == Source.KERAS:
        return summary
    frozen, layers = total - trainable, list(summary.layers)
    for index, layer in enumerate(layers):
        if frozen < (layer.params or 0) or frozen < total // 100:
            break
        if layer.params:
            layers[index] = replace(layer, trainable=False)
            frozen -= layer.params
    return replace(summary, layers=tuple(layers))
