"""Weights that two rows show and the model holds once: the word embedding of language models."""

from __future__ import annotations

from dataclasses import replace

from gpumemnet.names import Group, Source
from gpumemnet.texts import kinds
from gpumemnet.texts.model_names import ties_words
from gpumemnet.texts.records import Layer, ModelSummary


def count_once(summary: ModelSummary) -> ModelSummary:
    """Take the second showing of a tied weight out of the count.

    A stated total decides where the text has one that counts each weight once (annotated `print(model)`); else the
    model's class name does.
    """
    root = summary.root
    total, counted = summary.total_params, sum(layer.params or 0 for layer in summary.layers)
    exact = summary.format == Source.MODULE_REPR and total is not None
    first = next((layer for layer in summary.layers if _is_embedding(layer) and layer.params), None)
    if first is None or not (ties_words(root) if not exact else counted > (total or 0)):
        return summary
    size = first.params or 0
    seen = False
    layers: list[Layer] = []
    removed = 0
    for layer in summary.layers:
        count = layer.params or 0
        if _is_embedding(layer) and count == size:
            if seen:
                layer, removed = replace(layer, params=0, param_shapes=()), removed + count
            seen = True
        elif kinds.group_of(layer.kind) is Group.LINEAR and size <= count <= size + size // 16 and seen:
            layer, removed = replace(layer, params=count - size, param_shapes=()), removed + size
        layers.append(layer)
    # torchinfo's total counts a tied weight once for each row that shows it.
    stated = total if total is None or exact else max(total - removed, 0)
    return replace(summary, layers=tuple(layers), total_params=stated)


def _is_embedding(layer: Layer) -> bool:
    return kinds.group_of(layer.kind) is Group.EMBEDDING
