"""Resolve what the rows of a summary leave open: idle, shared and frozen layers.

All rows have shapes at this point, shown or inferred.
"""

from __future__ import annotations

from gpumemnet.names import Group, Source
from gpumemnet.summaries.texts import kinds, rows, totals
from gpumemnet.summaries.texts.model_names import drops_nothing, ties_words
from gpumemnet.summaries.texts.records import Layer, ModelSummary


def settle(summary: ModelSummary) -> ModelSummary:
    """Mark idle dropouts, count shared weights once, mark the frozen layers, report inconsistencies."""
    settled = freeze_first(count_once(without_idle(summary)))
    return settled._replace(warnings=(*settled.warnings, *totals.warnings(settled)))


def without_idle(summary: ModelSummary) -> ModelSummary:
    """Mark dropouts of rate 0, as in most published vision models: PyTorch runs no kernel and keeps no mask.

    `print(model)` shows the rate. Other texts do not, but timm's blocks, whose rates default to 0, have an Identity for
    each disabled option next to their dropouts. If one is disabled, so are the model's others: one argument sets them
    all. For transformers' models the class name decides.
    """
    identities = {layer.path for layer in summary.layers if layer.path and layer.kind == "identity"}
    dropouts = rows.of_group(summary.layers, Group.DROPOUT)
    shown = any(layer.path in identities for layer in dropouts if "p" not in layer.args)
    if not shown and not drops_nothing(summary.root):
        return summary
    layers = tuple(
        layer._replace(args={**layer.args, "p": 0.0}) if _rate_unknown(layer) else layer
        for layer in summary.layers
    )
    return summary._replace(layers=layers)


def drops(summary: ModelSummary) -> bool:
    """Return whether any dropout of a model has a rate above 0."""
    return not all(map(is_idle, rows.of_group(summary.layers, Group.DROPOUT)))


def is_idle(layer: Layer) -> bool:
    """Return whether a layer is a dropout of rate 0."""
    return kinds.group_of(layer.kind) is Group.DROPOUT and layer.args.get("p") == 0.0


def _rate_unknown(layer: Layer) -> bool:
    """Return whether a dropout's rate is not shown."""
    return kinds.group_of(layer.kind) is Group.DROPOUT and "p" not in layer.args


def count_once(summary: ModelSummary) -> ModelSummary:
    """Exclude the second row of a tied weight, the word embedding of language models, from the count.

    A stated total that counts each weight once decides, if there is one (annotated `print(model)`); else the
    model's class name does.
    """
    root = summary.root
    total, counted = summary.total_params, sum(layer.params or 0 for layer in summary.layers)
    exact = summary.format == Source.MODULE_REPR and total is not None
    embeddings = rows.of_group(summary.layers, Group.EMBEDDING)
    first = next((layer for layer in embeddings if layer.params), None)
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
                layer, removed = layer._replace(params=0, param_shapes=()), removed + count
            seen = True
        elif kinds.group_of(layer.kind) is Group.LINEAR and size <= count <= size + size // 16 and seen:
            layer, removed = layer._replace(params=count - size, param_shapes=()), removed + size
        layers.append(layer)
    # torchinfo's total counts a tied weight once for each row with it.
    stated = total if total is None or exact else max(total - removed, 0)
    return summary._replace(layers=tuple(layers), total_params=stated)


def _is_embedding(layer: Layer) -> bool:
    return kinds.group_of(layer.kind) is Group.EMBEDDING


def freeze_first(summary: ModelSummary) -> ModelSummary:
    """Mark the first layers as frozen, as in fine-tuning, up to the stated number of frozen parameters."""
    total, trainable = summary.total_params, summary.trainable_params
    marked = any(not layer.trainable for layer in summary.layers)
    if total is None or trainable is None or marked or summary.format == Source.KERAS:
        return summary
    frozen, layers = total - trainable, list(summary.layers)
    for index, layer in enumerate(layers):
        if frozen < (layer.params or 0) or frozen < total // 100:
            break
        if layer.params:
            layers[index] = layer._replace(trainable=False)
            frozen -= layer.params
    return summary._replace(layers=tuple(layers))
