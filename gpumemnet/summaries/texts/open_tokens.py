"""Fill the open number of tokens in Keras' tables, `(None, None, 256)`, with the user's sequence length."""

from __future__ import annotations

from gpumemnet.names import Source
from gpumemnet.summaries.texts.records import ModelSummary, Shape


def filled(summary: ModelSummary, seq_len: int | None) -> ModelSummary:
    """Return the summary with tokens for open second dimensions of tokens and vectors of them.

    Args:
        summary: The parsed text.
        seq_len: Tokens per sample; None if the user gave none.
    """
    if summary.format is not Source.KERAS or not seq_len:
        return summary
    layers = tuple(
        layer._replace(output_shapes=tuple(_filled(shape, seq_len) for shape in layer.output_shapes))
        for layer in summary.layers
    )
    return summary._replace(layers=layers)


def _filled(shape: Shape, seq_len: int) -> Shape:
    return (shape[0], seq_len, *shape[2:]) if 2 <= len(shape) <= 3 and shape[1] is None else shape
