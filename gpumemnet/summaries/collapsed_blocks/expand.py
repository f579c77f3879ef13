"""Guess the contents of a container that a depth limit cut off, from its name, shapes and parameter count.

torchinfo stops at depth 3 by default, which hides the contents of most residual and attention blocks. Each template
(`token_templates`, `image_templates`) solves for the inner width that explains the parameters. If a usual block has
exactly a row's parameters, it is used (`inverted`, `bottlenecks`, `stacks`, `decoders`, `named_layers`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from typing import NamedTuple

from gpumemnet.names import Group
from gpumemnet.summaries.collapsed_blocks.image_templates import ImageTemplates
from gpumemnet.summaries.collapsed_blocks.layer_templates import Dims
from gpumemnet.summaries.collapsed_blocks.scale import ATTENTION
from gpumemnet.summaries.collapsed_blocks.token_templates import TokenTemplates, exact_stack
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.model_names import usual_activation, writes_scores
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.summaries.texts.settle import is_idle

_ELSEWHERE = ("sigmoid", "tanh")
"""Activations of gates and poolers, which do not indicate a block's contents."""
_HOLDERS = re.compile(r"(layers?|blocks?|stack|encoder|decoder|model|for[a-z]+)$")
"""Ends of class names that hold attention."""


class ShownRows(NamedTuple):
    """Information in a text's rows about the rows that it hides.

    Attributes:
        activation: The most frequent kind of activation; "" if there is none.
        layernorm: Whether it shows more layer norms than batch norms.
        norm: The last shown kind of norm of tokens, or the usual one.
        dropout: Whether it shows dropout of a rate above 0.
    """

    activation: str
    layernorm: bool
    norm: str
    dropout: bool


def shown(layers: tuple[Layer, ...]) -> ShownRows:
    """Return the information in rows; called once for a text.

    Args:
        layers: The rows that the text shows.
    """
    groups = Counter(kinds.group_of(layer.kind) for layer in layers)
    activations = Counter(
        layer.kind
        for layer in layers
        if kinds.group_of(layer.kind) is Group.ACTIVATION
        and layer.kind not in _ELSEWHERE
        and not layer.is_block
    )
    return ShownRows(
        activation=activations.most_common(1)[0][0] if activations else "",
        layernorm=groups[Group.LAYERNORM] > groups[Group.BATCHNORM],
        norm=_norm_of(layers),
        dropout=any(kinds.group_of(layer.kind) is Group.DROPOUT and not is_idle(layer) for layer in layers),
    )


def activation_of(shown: ShownRows, *, tokens: bool, classes: tuple[str, ...] = ()) -> str:
    """Return the most frequent activation of the text, or the usual one of such networks.

    Args:
        shown: Information in the text.
        tokens: Whether the block works on sequences.
        classes: Class names of the block and of what is around it.
    """
    return shown.activation or usual_activation(classes) or ("gelu" if tokens or shown.layernorm else "relu")


def _norm_of(layers: tuple[Layer, ...]) -> str:
    """Return the last kind of norm in the text, or the usual one.

    A library's norm (LlamaRMSNorm) is recognized by its name alone.
    """
    found = (
        layer.kind
        for layer in reversed(layers)
        if layer.params and (kinds.group_of(layer.kind) is Group.LAYERNORM or layer.kind.endswith("rmsnorm"))
    )
    return next(found, "layernorm")


def _attention_of(layer: Layer) -> str:
    """Return the class name of attention inside a block, from the names of the block and its container.

    Class names of one model begin alike: T5Block holds T5Attention, LayoutLMEncoder LayoutLMSelfAttention.
    """
    for name in (layer.kind, *(cls.lower() for cls, _ in reversed(layer.path))):
        attention = _HOLDERS.sub("", name) + ATTENTION
        if writes_scores(attention):
            return attention
    return ATTENTION


def expand(
    layer: Layer,
    ins: Dims,
    outs: Dims,
    shown: ShownRows,
    *,
    classes: tuple[str, ...] = (),
    times: int = 1,
) -> tuple[Layer, ...]:
    """Return the layers that the block probably runs.

    Args:
        layer: The block's row.
        ins: Shape of its input, batch size applied.
        outs: Shape of its output.
        shown: Information in the rest of the text.
        classes: Class names of the block and of what is around it.
        times: Number of convolution blocks that the row represents, as far as the text's totals show.

    Returns:
        Layers with shapes; empty if the block has no operations itself.
    """
    count = layer.params or 0
    name = " ".join((layer.kind, *(cls.lower() for cls, _ in layer.path[-1:])))
    activation = activation_of(shown, tokens=len(outs) == 3, classes=classes)
    tokens = TokenTemplates(
        activation,
        dropout=shown.dropout,
        container=_attention_of(layer),
        norm=shown.norm,
        written_out=layer.kind == kinds.OWN_ATTENTION,
    )
    images = ImageTemplates(activation, layernorm=shown.layernorm)
    if not count or not outs or min(*ins, *outs, 1) < 1:
        return ()
    if len(outs) == 4 == len(ins) and outs[1] == outs[2] != outs[3] and not re.search("conv|res", name):
        outs, ins = (
            (outs[0], outs[1] * outs[2], outs[3]),
            (ins[0], math.prod(ins[1:-1]), ins[-1]),
        )  # channels last
    elif len(outs) == 4 and ins == outs and outs[2] != outs[3] and exact_stack(count, outs[3]):
        outs = ins = (outs[0] * outs[1], *outs[2:])  # layers on windows
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
