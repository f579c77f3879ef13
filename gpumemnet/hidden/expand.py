"""The likely inside of a container that a depth limit cut off, from its name, its shapes and its parameter count.

torchinfo stops at depth 3 unless told otherwise, which hides the inside of most residual and attention blocks. Each
template (`token_templates`, `image_templates`) solves for the inner width that explains the parameters.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter

from gpumemnet.hidden.image_templates import ImageTemplates
from gpumemnet.hidden.layer_templates import Dims
from gpumemnet.hidden.scale import ATTENTION
from gpumemnet.hidden.token_templates import TokenTemplates
from gpumemnet.names import Group
from gpumemnet.texts import kinds
from gpumemnet.texts.model_names import writes_scores
from gpumemnet.texts.records import Layer


def activation_of(layers: tuple[Layer, ...], *, tokens: bool) -> str:
    """Return the activation that the text shows most, or the usual one of such networks.

    Args:
        layers: The rows that the text shows.
        tokens: Whether the block works on sequences.
    """
    seen = Counter(
        layer.kind
        for layer in layers
        if kinds.group_of(layer.kind) is Group.ACTIVATION and layer.kind != "sigmoid"
    )
    return seen.most_common(1)[0][0] if seen else "gelu" if tokens else "relu"


def has_layernorm(layers: tuple[Layer, ...]) -> bool:
    """Tell whether the text shows more layer norms than batch norms."""
    groups = Counter(kinds.group_of(layer.kind) for layer in layers)
    return groups[Group.LAYERNORM] > groups[Group.BATCHNORM]


def _attention_of(layer: Layer) -> str:
    """Return what the attention inside a block is called: its class names begin alike where scores are written out."""
    return f"{layer.kind}{ATTENTION}" if writes_scores(layer.kind) else ATTENTION


def expand(
    layer: Layer,
    ins: Dims,
    outs: Dims,
    activation: str,
    *,
    dropout: bool,
    layernorm: bool = False,
    times: int = 1,
) -> tuple[Layer, ...]:
    """Return what the block probably runs.

    Args:
        layer: The block's row.
        ins: Shape of its input, batch size applied.
        outs: Shape of its output.
        activation: Kind of activation inside.
        dropout: Whether the text shows dropout elsewhere.
        layernorm: Whether it shows layer norms rather than batch norms.
        times: How many convolution blocks the row stands for, as far as the text's totals tell.

    Returns:
        Layers with shapes; empty if the block does nothing of its own.
    """
    count = layer.params or 0
    name = " ".join((layer.kind, *(cls.lower() for cls, _ in layer.path[-1:])))
    tokens = TokenTemplates(activation, dropout=dropout, container=_attention_of(layer))
    images = ImageTemplates(activation, layernorm=layernorm)
    if not count or not outs or min(*ins, *outs, 1) < 1:
        return ()
    if len(outs) == 4 == len(ins) and outs[1] == outs[2] != outs[3] and not re.search("conv|res", name):
        outs, ins = (
            (outs[0], outs[1] * outs[2], outs[3]),
            (ins[0], math.prod(ins[1:-1]), ins[-1]),
        )  # channels last
    if len(outs) == 3 or (len(outs) == 2 and re.search("mlp|feed|ff", name)):
        made = tokens.block(name, count, ins, outs)
    elif len(outs) >= 4 and len(ins) == len(outs):
        made = itertools.chain(
            images.block(name, count // times, ins, outs),
            *(images.block(name, count // times, outs, outs) for _ in range(times - 1)),
        )
    else:
        made = tokens.plain(count, ins, outs)
    layers = tuple(made)
    spent = sum(inner.params or 0 for inner in layers)
    if count > spent:
        layers = (*layers, Layer(kind="parameter", name=layer.name, params=count - spent))
    return layers
