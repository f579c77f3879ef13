"""The tensors of an attention operation between its projections, fused or with its scores written out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumemnet import sources
from gpumemnet.kinds import KINDS
from gpumemnet.tape import Op

if TYPE_CHECKING:
    from gpumemnet.summary import Layer
    from gpumemnet.wiring import Wiring

HEAD_DIM = 64
"""Width of one head where the text does not tell; what most published transformers use."""


def attend(
    wiring: Wiring, projected: list[int], scores: tuple[int, ...] | None, *, eager: bool, dropout: bool
) -> int:
    """Add an attention operation.

    Args:
        wiring: The tape under construction.
        projected: Queries, keys, values; one tensor if they are joint.
        scores: Shape of the scores if the text shows it.
        eager: The scores are written out: softmax and matrix products are operations of their own.
        dropout: A dropout runs over the scores.

    Returns:
        The output tensor: one value per query.
    """
    first = wiring.shapes[projected[0]]
    width = first[-1] // 3 if len(projected) == 1 else first[-1]
    out = (*first[:-1], max(width, 1))
    tokens = first[-2] if len(first) > 2 else 1
    rows = max(wiring.elements[projected[0]] // max(first[-1], 1), 1)
    heads = max(1, width // HEAD_DIM)
    extra: list[int] = []
    kept = list(projected)
    for at, number in enumerate(projected[1:], start=1):
        if wiring.shapes[number][-1] < width:  # grouped queries: keys and values are repeated for every head
            extra.append(wiring.tensor(out, wiring.items[number]))
            kept[at] = extra[-1]
    if not eager:
        wiring.tape.doubt_bytes += rows * heads * tokens * wiring.low
        statistics = wiring.tensor((rows, heads), 4)
        output = wiring.tensor(out, wiring.low)
        wiring.add(
            Op(
                inputs=tuple(projected), output=output, saved=(*kept, output, statistics),
                extra=(*extra, statistics), group="attention",
            )
        )  # fmt: skip
        return output
    shape = scores or (rows, heads, tokens)
    if scores and len(first) == 3 and scores[0] < first[0]:
        shape = (first[0], *scores[1:])  # windows folded into the batch
    raw = wiring.tensor(shape, wiring.low)
    wiring.tape.score_bytes += wiring.tape.sizes[raw]
    wiring.add(
        Op(inputs=tuple(projected), output=raw, saved=tuple(kept), extra=tuple(extra), group="attention")
    )
    weights = wiring.operation(KINDS["softmax"], raw, shape)
    if wiring.amp:
        weights = wiring.operation(KINDS["concatenate"], weights, shape)
    if dropout:
        weights = wiring.operation(KINDS["dropout"], weights, shape)
    output = wiring.tensor(out, wiring.low)
    read = wiring.autocast(weights)
    wiring.add(
        Op(
            inputs=(weights,), output=output, saved=(read,), extra=() if read == weights else (read,),
            group="attention",
        )
    )  # fmt: skip
    return output


def module(wiring: Wiring, layer: Layer) -> None:
    """Add PyTorch's nn.MultiheadAttention: joint projection, attention, output projection in one row."""
    shape = wiring.scaled(layer.output_shapes[0]) if layer.output_shapes else ()
    weights = wiring.parameters(layer)
    if not shape:
        return
    shape = sources.unfolded(wiring, layer, KINDS["multiheadattention"], shape)
    width = shape[-1]
    if not weights and not layer.params:  # torchsummary does not count its parameters
        first = len(wiring.tape.parameters)
        wiring.tape.parameters.extend(
            n * wiring.high for n in (3 * width * width, 3 * width, width * width, width)
        )
        weights = tuple(range(first, first + 4))
    if wiring.current < 0:
        wiring.current = wiring.tensor(shape, wiring.high, constant=True)
    joint = wiring.operation(KINDS["linear"], wiring.current, (*shape[:-1], 3 * width), weights)
    # Queries, keys and values are copied out of the joint projection before they are used.
    copied = wiring.operation(KINDS["concatenate"], joint, (*shape[:-1], 3 * width))
    inside_layer = any(cls.lower().startswith(("transformer", "encoderblock")) for cls, _ in layer.path)
    shows_weights = len(layer.output_shapes) > 1
    eager = shows_weights or not inside_layer
    mixed = attend(wiring, [copied], None, eager=eager, dropout=True)
    rows = wiring.operation(KINDS["concatenate"], mixed, wiring.shapes[mixed])
    wiring.current = wiring.operation(KINDS["linear"], rows, shape)
