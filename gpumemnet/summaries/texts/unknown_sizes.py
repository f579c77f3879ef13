"""Refuse texts with layers whose size they do not show: what has weights is never counted as nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpumemnet.errors import SummaryError
from gpumemnet.names import Group, Source
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import BY_HAND, TRACE, Layer, ModelSummary

_EXPAND = "print it with model.summary(expand_nested=True, line_length=200)"
_WITH_WEIGHTS = (Group.CONV, Group.LINEAR, Group.EMBEDDING, Group.RNN)
_NAMED_SO = r"linear|conv|dense|experts|embedding|lstm|gru(?!n)|lora|scriptmodule"
_FIXED = r"(?i:pos|rotary|sinus|rope|fourier|timestep)"
"""Tables that are computed, or small next to the model."""
_GRAPH = r"(?:conv|gnn)$"
"""Message-passing layers; those on images have a digit at the end."""
_EXPERTS = r"(?i:experts)"
_TOKENS = "add seq_len=N (--seq-len N)"
_SIDES = "build the model with its sizes, such as keras.Input((512, 512, 3)), and print it again"
_LARGE = 100_000
"""Parameters from which on an unknown layer of Keras is another model."""


def check(summary: ModelSummary, *, path: str) -> None:
    """Refuse a text that hides the size of a layer with weights.

    Args:
        summary: The parsed text.
        path: File, for messages.

    Raises:
        SummaryError: It has such a layer; the line is named.
    """
    found = _FINDERS.get(summary.format)
    for layer, problem, fix in found(summary) if found else ():
        raise SummaryError(path=path, line=layer.line, problem=problem, fix=fix)


UnknownSize = tuple[Layer, str, str]
"""A layer, the problem and the fix."""


def _in_tree(summary: ModelSummary) -> Iterator[UnknownSize]:
    """Yield layers of `print(model)` that have weights by their name and show no sizes."""
    held = {pair for layer in summary.layers if layer.params for pair in layer.path}
    for layer in summary.layers:
        shown = layer.name if layer.name and not layer.name.isdigit() else layer.kind
        if re.search(_GRAPH, layer.kind) and not kinds.is_known(layer.kind):
            yield (
                layer,
                f"{shown} works on a graph, and no text shows how many nodes and edges it has",
                TRACE,
            )
        elif _sizeless(layer):
            yield layer, f"{shown} ({layer.kind}) has weights, and the text does not show their size", TRACE
        hidden = next(
            (pair for pair in layer.path if re.search(_EXPERTS, pair[0]) and pair not in held), None
        )
        if hidden is not None:
            yield layer, f"{hidden[0]} has weights, and the text does not show their size", TRACE


def _sizeless(layer: Layer) -> bool:
    table = kinds.group_of(layer.kind) not in (Group.CONV, Group.LINEAR, Group.RNN)
    if table and re.search(_FIXED, f"{layer.name} {layer.kind}"):
        return False
    if kinds.group_of(layer.kind) in _WITH_WEIGHTS:
        return not layer.params or any(0 in shape for shape in layer.param_shapes)
    return not layer.params and not kinds.is_known(layer.kind) and bool(re.search(_NAMED_SO, layer.kind))


def _in_keras(summary: ModelSummary) -> Iterator[UnknownSize]:
    """Yield models inside a Keras model, and layers with open sides."""
    for layer in summary.layers:
        if not layer.params and not layer.output_shapes:
            continue
        if layer.is_block and layer.params:
            yield layer, f"{layer.name} is a model of its own, whose layers the table does not show", _EXPAND
        elif (layer.params or 0) > _LARGE and not kinds.is_known(layer.kind):
            yield (
                layer,
                f"{layer.name} holds {layer.params:,} parameters in layers that the table does not show",
                f"{_EXPAND}, or {BY_HAND}",
            )
        elif any(None in shape[1:] for shape in layer.output_shapes):
            tokens = all(len(shape) < 4 for shape in layer.output_shapes)
            yield layer, f"the sizes of {layer.name} are open (None)", _TOKENS if tokens else _SIDES


_FINDERS = {Source.MODULE_REPR: _in_tree, Source.KERAS: _in_keras}
