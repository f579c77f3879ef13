"""The tensors of an attention operation between its projections, fused or with its scores written out."""

from __future__ import annotations

import re

from gpumemnet.graph import inputs
from gpumemnet.graph.builder import TapeBuilder
from gpumemnet.graph.site import Site
from gpumemnet.graph.tape import Op
from gpumemnet.names import Group
from gpumemnet.texts import kinds
from gpumemnet.texts.kinds import KINDS, Kind
from gpumemnet.texts.model_names import drops_by_function, mixes_positions, rotates
from gpumemnet.texts.records import Layer
from gpumemnet.texts.settle import is_idle

_IMAGE = 4
_LIBRARY_MODEL = re.compile(r"For[A-Z]\w+$|LMHeadModel$")
"""How class names of transformers' models with a head end."""
_SCALED = Kind(group=Group.FUNCTION, saves_input=True)
_PROJECTED = Kind(group=Group.FUNCTION, copies=1)
"""A layer over the heads of each pair of tokens keeps a copy with the heads last."""
_MIXED = Kind(group=Group.FUNCTION, saves_input=True, copies=2)
"""Softmax of the positions' scores, the mixture, and (by what reads it) the mixture that sums up to one."""


def attend(
    builder: TapeBuilder,
    projected: list[int],
    scores: tuple[int, ...] | None,
    *,
    eager: bool,
    dropout: bool,
    width: int | None = None,
    heads: int | None = None,
    mixed: bool = False,
    scaled: bool = False,
    over: int = 0,
    spelt_out: bool = False,
    keys: int | None = None,
    cosine: bool = False,
    rotated: bool = False,
    pooled: int = 1,
) -> int:
    """Add an attention operation.

    Args:
        builder: The tape under construction.
        projected: Queries, keys, values; one tensor if they are joint.
        scores: Shape of the scores if the text shows it.
        eager: The scores are written out: softmax and matrix products are operations of their own.
        dropout: A dropout runs over the scores.
        width: Features of all heads; None where that is the queries' width, or a third of a joint projection's.
        heads: How many heads; None where that follows from the usual width of one.
        scaled: The scores are multiplied by a learned factor of each head.
        mixed: The scores are mixed with those of positions and made to sum up to one again.
        over: How many layers work on the scores (talking heads), half of them before the softmax.
        spelt_out: PyTorch's own attention writes the scores out, as no fused form takes its inputs.
        keys: How many each query meets; None where that are all tokens.
        cosine: Queries and keys are divided by their lengths, whose results are kept, too; scores are scaled.
        rotated: Queries and keys of a joint projection are turned by their positions into tensors of their own.
        pooled: How many queries become one, where PyTorch's own attention writes the scores out.

    Returns:
        The output tensor: one value per query.
    """
    first = builder.shapes[projected[0]]
    width = width or (first[-1] // 3 if len(projected) == 1 else first[-1])
    out = (*first[:-1], max(width, 1))
    rows = max(builder.elements[projected[0]] // max(first[-1], 1), 1)
    heads = heads or max(1, width // builder.head_width)
    seen = builder.shapes[projected[-2 if len(projected) > 1 else 0]]
    tokens = keys or (seen[-2] if len(seen) > 2 else 1)
    builder.count(2 * rows * width * tokens)
    if spelt_out:
        if pooled > 1:
            out = (*out[:-2], out[-2] // pooled, out[-1])
        return _spelt_out(builder, projected, out, (rows // pooled, heads, tokens), dropout=dropout)
    extra: list[int] = []
    # Fewer heads of keys and values, repeated for all.
    if len(projected) == 1 and width < first[-1] < 2 * width:
        extra = [builder.tensor(out, builder.items[projected[0]]) for _ in range(2)]
    kept = [*projected, *extra]
    for at, number in enumerate(projected[1:], start=1):
        if builder.shapes[number][-1] < width:  # grouped queries: keys and values are repeated for every head
            extra.append(builder.tensor(out, builder.items[number]))
            kept[at] = extra[-1]
    if not eager:
        if rotated and len(projected) == 1 and 3 * width == first[-1]:
            turned = [builder.tensor(out, builder.low) for _ in range(2)]
            extra, kept = [*extra, *turned], [*kept, *turned]
        builder.tape.doubt_bytes += rows * heads * tokens * builder.low
        statistics = builder.tensor((rows, heads), 4)
        output = builder.tensor(out, builder.low)
        builder.add(
            Op(
                inputs=tuple(projected), output=output, saved=(*kept, output, statistics),
                extra=(*extra, statistics), group=Group.ATTENTION,
            )
        )  # fmt: skip
        return output
    shape = scores or (rows, heads, tokens)
    if scores and len(first) == 3 and scores[0] < first[0]:
        shape = (first[0], *scores[1:])  # windows folded into the batch
    if cosine:  # of a joint projection values are copied as well
        made = [builder.tensor(out, builder.low) for _ in range(3 if len(projected) == 1 else 2)]
        extra, kept = [*extra, *made], [*kept, *made]
    raw = builder.tensor(shape, builder.low)
    builder.tape.score_bytes += builder.tape.sizes[raw]
    builder.add(
        Op(inputs=tuple(projected), output=raw, saved=tuple(kept), extra=tuple(extra), group=Group.ATTENTION)
    )
    if scaled or cosine:
        raw = builder.operation(_SCALED, raw, shape)
    for _ in range((over + 1) // 2):
        raw = builder.operation(_PROJECTED, raw, shape)
    weights = builder.operation(KINDS["softmax"], raw, shape)
    for _ in range(over // 2):
        weights = builder.operation(_PROJECTED, weights, shape)
    if builder.amp:
        weights = builder.operation(KINDS["concatenate"], weights, shape)
    if mixed:
        weights = builder.operation(_MIXED, weights, shape)
    if dropout:
        weights = builder.operation(KINDS["dropout"], weights, shape)
    output = builder.tensor(out, builder.low)
    read = builder.autocast(weights)
    builder.add(
        Op(
            inputs=(weights,), output=output, saved=(read,), extra=() if read == weights else (read,),
            group=Group.ATTENTION,
        )
    )  # fmt: skip
    return output


def _spelt_out(
    builder: TapeBuilder, projected: list[int], out: tuple[int, ...], shape: tuple[int, ...], *, dropout: bool
) -> int:
    """Add attention as PyTorch computes it where no fused form takes it, always in 32 bits.

    Queries and keys are scaled into copies, values are copied for the matrix product, each for all heads; of the
    projections nothing is kept (aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math).

    Args:
        builder: The tape so far.
        projected: Queries, keys, values; one tensor if they are joint.
        out: Shape of the result.
        shape: Of the scores.
        dropout: A dropout runs over the scores.

    Returns:
        The output tensor.
    """
    lengths = [builder.shapes[number][:-1] for number in projected]
    whole = [(*length, out[-1]) for length in (lengths * 3 if len(lengths) == 1 else lengths)]
    fewer = out != whole[0]  # what pools the queries keeps what it read
    whole[0] = out
    queries, keys, *values = [builder.tensor(each, 4) for each in whole]
    raw = builder.tensor(shape, 4)
    builder.tape.score_bytes += builder.tape.sizes[raw]
    made = (queries, keys)
    kept = (*projected, *made) if fewer else made
    builder.add(
        Op(inputs=tuple(projected), output=raw, saved=kept, extra=(*made, *values), group=Group.ATTENTION)
    )
    weights = builder.operation(KINDS["softmax"], raw, shape)
    if dropout:
        weights = builder.operation(KINDS["dropout"], weights, shape)
    output = builder.tensor(out, builder.low)
    builder.add(Op(inputs=(weights,), output=output, saved=(weights, *values), group=Group.ATTENTION))
    return output


def at_site(
    builder: TapeBuilder, site: Site, projected: list[int], layers: tuple[Layer, ...], *, drops: bool
) -> int:
    """Add the attention of a site that was found in the rows.

    Args:
        builder: The tape so far.
        site: Where it is.
        projected: Queries, keys, values; one tensor if they are joint.
        layers: The rows.
        drops: Whether the model drops anything.

    Returns:
        The output tensor.
    """
    shown = None if site.scores is None else layers[site.scores]
    dropped = shown is not None and kinds.group_of(shown.kind) is Group.DROPOUT and not is_idle(shown)
    # Where nothing shows the scores and the model drops elsewhere, a function drops scores that are written out.
    dropped = dropped or (shown is None and not site.drops and drops) or drops_by_function(site.container)
    _see_pixels_as_tokens(builder, projected)
    spelt_out = site.spelt_out or _repeats_keys(builder, site, projected, layers)
    made = attend(
        builder,
        projected,
        None if shown is None else builder.scaled(shown.output_shapes[0]),
        width=site.width,
        eager=site.eager,
        dropout=(drops if spelt_out else dropped),
        heads=site.heads,
        mixed=mixes_positions(site.container),
        over=len(site.over),
        spelt_out=spelt_out,
        keys=site.keys,
        cosine=site.cosine,
        rotated=builder.rotates or rotates(site.container),
        pooled=site.pooled,
    )
    if site.windows:
        shape, op = builder.shapes[projected[0]], builder.tape.ops[-1]
        copies = builder.tensor((*shape[:-1], site.windows * shape[-1]), builder.low)
        op.saved, op.extra = (*op.saved, copies), (*op.extra, copies)
    return made


def _repeats_keys(builder: TapeBuilder, site: Site, projected: list[int], layers: tuple[Layer, ...]) -> bool:
    """Tell whether fused attention is asked to repeat its keys for several heads of queries, in 32 bits.

    transformers' models leave that to PyTorch, whose only form that repeats and is fused takes 16 bits.
    """
    if site.eager or builder.low == 2 or not _LIBRARY_MODEL.search(builder.root):
        return False
    width = builder.shapes[projected[0]][-1]
    if len(projected) == 1:
        return site.width is not None and site.width < width < 2 * site.width
    return builder.shapes[projected[1]][-1] < (site.width or width)


def _see_pixels_as_tokens(builder: TapeBuilder, projected: list[int]) -> None:
    """See images that convolutions made as [batch, pixels, channels], as attention reads them."""
    for number in projected:
        shape = builder.shapes[number]
        made_by = next((op.group for op in reversed(builder.tape.ops) if op.output == number), None)
        if len(shape) == _IMAGE and made_by is Group.CONV:
            builder.shapes[number] = (shape[0], shape[2] * shape[3], shape[1])


def module(builder: TapeBuilder, layer: Layer) -> int:
    """Add PyTorch's nn.MultiheadAttention: joint projection, attention, output projection in one row.

    Args:
        builder: The tape so far.
        layer: The row.

    Returns:
        The output tensor; the last layer's if the row shows no shape.
    """
    shape = builder.scaled(layer.output_shapes[0]) if layer.output_shapes else ()
    weights = builder.parameters(layer)
    if not shape:
        return builder.current
    shape = inputs.unfolded(builder, layer, KINDS["multiheadattention"], shape)
    width = shape[-1]
    if not weights and not layer.params:  # torchsummary does not count its parameters
        first = len(builder.tape.parameters)
        builder.tape.parameters.extend(
            n * builder.high for n in (3 * width * width, 3 * width, width * width, width)
        )
        weights = tuple(range(first, first + 4))
    source = builder.current
    if source < 0:
        source = builder.tensor(shape, builder.high, constant=True)
    joint = builder.operation(KINDS["linear"], source, (*shape[:-1], 3 * width), weights)
    # Queries, keys and values are copied out of the joint projection before they are used.
    copied = builder.operation(KINDS["concatenate"], joint, (*shape[:-1], 3 * width))
    inside_layer = any(cls.lower().startswith(("transformer", "encoderblock")) for cls, _ in layer.path)
    shows_weights = len(layer.output_shapes) > 1
    eager = shows_weights or not inside_layer
    mixed = attend(builder, [copied], None, eager=eager, dropout=True)
    rows = builder.operation(KINDS["concatenate"], mixed, builder.shapes[mixed])
    return builder.operation(KINDS["linear"], rows, shape)
