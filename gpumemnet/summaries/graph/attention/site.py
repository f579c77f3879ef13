"""An attention operation among the rows, and the properties that its rows show."""

from __future__ import annotations

from typing import NamedTuple

from gpumemnet.summaries.texts.records import Layer
from gpumemnet.summaries.texts.widths import fan_in

ContainerPath = tuple[tuple[str, str], ...]
"""Containers around a layer, from the outside in, as (class name, local name)."""


class AttentionSite(NamedTuple):
    """One attention operation.

    Attributes:
        projections: Indices of the linear layers for queries, keys and values (1 if joint, else 2 or 3).
        scores: Index of the layer that shows the scores (dropout or softmax), or None.
        eager: The scores are known to be materialized.
        container: Class name of the attention module, "" if not shown.
        width: Features of all heads together; None if the projections show it.
        drops: A row inside the attention module shows a dropout.
        heads: Number of heads; None if no row shows it.
        over: Indices of linear layers over the heads of all pairs of tokens (talking heads).
        spelt_out: PyTorch's attention materializes the scores: it fuses none of three or five dimensions.
        keys: Number of keys per query; None for all tokens.
        pooled: Number of queries pooled into one before the product with the keys.
        windows: Number of neighbours that a parallel convolution keeps copies of (ConvBERT).
        cosine: Queries and keys are divided by their lengths, and scores multiplied by a number per head.
    """

    projections: tuple[int, ...]
    scores: int | None = None
    eager: bool = False
    container: str = ""
    width: int | None = None
    drops: bool = False
    heads: int | None = None
    over: tuple[int, ...] = ()
    spelt_out: bool = False
    keys: int | None = None
    cosine: bool = False
    pooled: int = 1
    windows: int = 0


def out_of(layer: Layer) -> tuple[int | None, ...]:
    """Return a layer's output shape as printed; empty if the text does not show it."""
    return layer.output_shapes[0] if layer.output_shapes else ()


def reads(layer: Layer) -> int:
    """Return the input features of a linear layer, by its parameters; 0 if its output is not shown."""
    out = out_of(layer)
    return fan_in(layer.params, out[-1]) if out else 0


def same_width(layers: tuple[Layer, ...], indices: list[int]) -> bool:
    """Return whether layers can be query, key and value projections: equal, or with narrower keys and values.

    Args:
        layers: In running order.
        indices: Indices of three consecutive layers.
    """
    counts = [layers[index].params or 0 for index in indices]
    tokens = [len(out_of(layers[index])) for index in indices]
    bias = (out_of(layers[indices[1]]) or (0,))[-1] or 0  # keys may have no bias (Swin v2, Whisper)
    close = abs(counts[1] - counts[2]) in (0, bias) and 0 < counts[1] <= counts[0] + bias
    return close and len(set(tokens)) == 1


def own_parameters(layers: tuple[Layer, ...], path: ContainerPath, first: int) -> int | None:
    """Return the number of parameters that an attention module holds directly, from the row above its first layer.

    Args:
        layers: In running order.
        path: Path of the module, itself included.
        first: Index of its first layer.

    Returns:
        The number; None if no row shows it.
    """
    for layer in reversed(layers[:first]):
        if layer.kind == "parameter" and (layer.path, layer.name) == (path[:-1], path[-1][1]):
            return layer.params
        if layer.path[: len(path)] != path:
            return None
    return None
