"""Models with the batch as second dimension inside (XLNet): transposed if the text proves it."""

from __future__ import annotations

from gpumemnet.names import Group
from gpumemnet.summaries.texts import rows
from gpumemnet.summaries.texts.records import ModelSummary, Shape


def batch_first(summary: ModelSummary) -> ModelSummary:
    """Return the summary with the batch as the first dimension of every shape.

    The proof is an embedding that makes [tokens, batch, width] and a final output that begins with the batch again.
    Other such models are refused when they are scaled (`contradictions`).
    """
    order = _tokens_and_batch(summary)
    if order is None:
        return _parts_turned(summary)
    tokens, batch = order
    layers = tuple(
        layer._replace(
            input_shapes=tuple(_turned(shape, tokens, batch) for shape in layer.input_shapes),
            output_shapes=tuple(_turned(shape, tokens, batch) for shape in layer.output_shapes),
        )
        for layer in summary.layers
    )
    return summary._replace(layers=layers, batch_size=batch)


def _parts_turned(summary: ModelSummary) -> ModelSummary:
    """Transpose the rows of a part that runs on [tokens, batch, width], if others show [batch, tokens]."""
    batch = summary.batch_size
    shapes = [shape for layer in summary.layers for shape in (*layer.input_shapes, *layer.output_shapes)]
    lengths = {shape[1] for shape in shapes if len(shape) in (2, 3) and shape[0] == batch}
    if batch is None or not any(_is_turned(shape, lengths, batch) for shape in shapes):
        return summary

    def turned(found: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return tuple(
            (shape[1], shape[0], shape[2]) if _is_turned(shape, lengths, batch) else shape for shape in found
        )

    layers = tuple(
        layer._replace(input_shapes=turned(layer.input_shapes), output_shapes=turned(layer.output_shapes))
        for layer in summary.layers
    )
    return summary._replace(layers=layers)


def _is_turned(shape: Shape, lengths: set[int | None], batch: int) -> bool:
    """Return whether a shape is [tokens, batch, width]."""
    return len(shape) == 3 and shape[1] == batch != shape[0] and shape[0] in lengths


def _tokens_and_batch(summary: ModelSummary) -> tuple[int, int] | None:
    """Return the sizes of the first two dimensions inside; None if the batch is first or unclear."""
    embeddings = rows.of_group(summary.layers, Group.EMBEDDING)
    words = next((layer for layer in embeddings if list(map(len, layer.output_shapes[:1])) == [3]), None)
    last = next((layer for layer in reversed(summary.layers) if layer.runs and layer.output_shapes), None)
    if words is None or last is None or not last.output_shapes[0]:
        return None
    tokens, batch = words.output_shapes[0][:2]
    ends = last.output_shapes[0][0]
    if tokens is None or batch is None or tokens == batch or tokens != summary.batch_size or ends != batch:
        return None
    return tokens, batch


def _turned(shape: Shape, tokens: int, batch: int) -> Shape:
    """Swap the first two dimensions of an inner shape; attention over distances has twice as many tokens."""
    if len(shape) in (2, 3) and shape[0] in (tokens, 2 * tokens) and shape[1] == batch:
        return (batch, shape[0], *shape[2:])
    return shape
