"""Infer arguments of layers from their parameter counts, for a table that shows neither shapes nor arguments.

`torchinfo.summary(model)` prints such a table without an input, as is usual for models that take a dictionary. A norm's
parameters give the width of its input; with that width, the table's other counts give their arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumemnet.errors import SetupError
from gpumemnet.names import Group
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.arguments import integer, parameter_shapes
from gpumemnet.summaries.texts.records import Layer

_NEEDS = {Group.EMBEDDING: "embedding_dim", Group.RNN: "hidden_size"}
"""Without this argument the model's width is unknown: the first guess was a hundred times too large."""


def with_arguments(layers: Sequence[Layer]) -> list[Layer]:
    """Add the arguments that parameter counts determine to layers that show none.

    Args:
        layers: In printed order.

    Raises:
        SetupError: The width of an embedding or a recurrent layer cannot be determined.
    """
    norms = (width for layer in layers if (width := _norm_width(layer)))
    width = next(norms, 0)  # of the tokens between blocks
    made = 0  # by the last linear layer
    last = {layer.path: index for index, layer in enumerate(layers) if _group(layer) is Group.LINEAR}
    found = []
    for index, layer in enumerate(layers):
        args: dict[str, object] = {}
        if _norm_width(layer):
            width = _norm_width(layer)
            args = {"0": (width,)}
        elif _group(layer) is Group.EMBEDDING and width and layer.params and not layer.params % width:
            args = {"num_embeddings": layer.params // width, "embedding_dim": width}
        elif _group(layer) is Group.LINEAR and width and layer.params:
            args = _linear(layer.params, width, made, ends=last[layer.path] == index)
            made = integer(args, "out_features")
        if args and not layer.args:
            layer = layer._replace(args=args, param_shapes=parameter_shapes(layer.kind, _group(layer), args))
        _check(layer, width)
        found.append(layer)
    return found


def _group(layer: Layer) -> Group:
    return kinds.group_of(layer.kind)


def _norm_width(layer: Layer) -> int:
    """Return the width of the norm; 0 if the layer is no norm, or shows its arguments."""
    if _group(layer) is not Group.LAYERNORM or layer.args or not layer.params:
        return 0
    one_each = "rms" in layer.kind or "t5" in layer.kind
    return layer.params if one_each else layer.params // 2


def _linear(params: int, width: int, made: int, *, ends: bool) -> dict[str, object]:
    """Return the arguments of a linear layer; none if no whole numbers give its parameters.

    Args:
        params: Its parameters.
        width: Width of the tokens between blocks.
        made: Output width of the last linear layer.
        ends: It is the last linear layer of its block, which restores `width` if that fits.
    """
    for ins, outs in ((made, width),) if ends and made != width else ():
        if params in (ins * outs, (ins + 1) * outs):
            return {"in_features": ins, "out_features": outs, "bias": params != ins * outs}
    for ins in filter(None, (width, made)):
        for bias in (True, False):
            outs, rest = divmod(params, ins + bias)
            if not rest:
                return {"in_features": ins, "out_features": outs, "bias": bias}
    return {}


def _check(layer: Layer, width: int) -> None:
    needed = _NEEDS.get(_group(layer))
    # Relative positions, by head.
    scores = _group(layer) is Group.EMBEDDING and (layer.params or 0) % max(width, 1)
    if needed and layer.params and not scores and not integer(layer.args, needed):
        raise SetupError(
            f"the text shows neither shapes nor the width of {layer.name}; print it with "
            "torchinfo.summary(model, input_size=...), or input_data=... for a dictionary"
        )
