"""Tensors of one attention operation: fused, with materialized scores, or as PyTorch composes it."""

from __future__ import annotations

from typing import NamedTuple

from gpumemnet.names import Group
from gpumemnet.summaries.graph.builder import TapeBuilder
from gpumemnet.summaries.graph.tape import Op
from gpumemnet.summaries.texts.kinds import KINDS, Kind

_SCALED = Kind(group=Group.FUNCTION, saves_input=True)
_PROJECTED = Kind(group=Group.FUNCTION, copies=1)
"""A layer over the heads of each token pair keeps a copy with the heads last."""
_MIXED = Kind(group=Group.FUNCTION, saves_input=True, copies=2)
"""Softmax of the positions' scores, the mixture, and (saved by its reader) the mixture normalized to one."""


class AttentionForm(NamedTuple):
    """Form of an attention operation.

    Attributes:
        eager: The scores are materialized: softmax and matrix products are separate operations.
        dropout: A dropout runs over the scores.
        scores: Shape of the scores if the text shows it.
        width: Features of all heads; None for the queries' width, or a third of a joint projection's.
        heads: Number of heads; None to derive it from the usual head width.
        mixed: The scores are mixed with those of positions and normalized to one again.
        scaled: The scores are multiplied by a learned factor per head.
        over: Number of layers on the scores (talking heads), half of them before the softmax.
        spelt_out: PyTorch's attention materializes the scores, as no fused form takes its inputs.
        keys: Number of keys per query; None for all tokens.
        cosine: Queries and keys are divided by their lengths, with the results kept as well; scores are scaled.
        rotated: Queries and keys of a joint projection are rotated by their positions into new tensors.
        pooled: Number of queries pooled into one, if PyTorch's attention materializes the scores.
    """

    eager: bool
    dropout: bool = False
    scores: tuple[int, ...] | None = None
    width: int | None = None
    heads: int | None = None
    mixed: bool = False
    scaled: bool = False
    over: int = 0
    spelt_out: bool = False
    keys: int | None = None
    cosine: bool = False
    rotated: bool = False
    pooled: int = 1


class _Meeting(NamedTuple):
    """Operands of an attention operation.

    Attributes:
        projected: Queries, keys, values; one tensor if they are joint.
        kept: Tensors among them, or made from them, that the backward pass reads.
        extra: Intermediate tensors made from them.
        out: Shape of the result: one value per query.
        rows: Queries of the whole batch.
        heads: Heads per query.
        tokens: Keys per query.
    """

    projected: list[int]
    kept: list[int]
    extra: list[int]
    out: tuple[int, ...]
    rows: int
    heads: int
    tokens: int

    @property
    def joint(self) -> bool:
        """Return whether one tensor holds queries, keys and values."""
        return len(self.projected) == 1

    def keep(self, made: list[int]) -> None:
        """Add kept tensors that are made from the projections."""
        self.extra.extend(made)
        self.kept.extend(made)


def attend(builder: TapeBuilder, projected: list[int], form: AttentionForm) -> int:
    """Add an attention operation.

    Args:
        builder: The tape under construction.
        projected: Queries, keys, values; one tensor if they are joint.
        form: Its form.

    Returns:
        The output tensor: one value per query.
    """
    first = builder.shapes[projected[0]]
    width = form.width or (first[-1] // 3 if len(projected) == 1 else first[-1])
    seen = builder.shapes[projected[-2 if len(projected) > 1 else 0]]
    meeting = _Meeting(
        projected=projected,
        kept=list(projected),
        extra=[],
        out=(*first[:-1], max(width, 1)),
        rows=max(builder.elements[projected[0]] // max(first[-1], 1), 1),
        heads=form.heads or max(1, width // builder.head_width),
        tokens=form.keys or (seen[-2] if len(seen) > 2 else 1),
    )
    builder.count(2 * meeting.rows * width * meeting.tokens)
    if form.spelt_out:
        return _spelt_out(builder, meeting, form)
    _repeat(builder, meeting, width)
    return (_eager if form.eager else _fused)(builder, meeting, form)


def _repeat(builder: TapeBuilder, meeting: _Meeting, width: int) -> None:
    """Repeat keys and values of fewer heads for all heads of queries."""
    projected = meeting.projected
    if meeting.joint and width < builder.shapes[projected[0]][-1] < 2 * width:
        meeting.keep([builder.tensor(meeting.out, builder.items[projected[0]]) for _ in range(2)])
    for at, number in enumerate(projected[1:], start=1):
        if builder.shapes[number][-1] < width:
            meeting.kept[at] = builder.tensor(meeting.out, builder.items[number])
            meeting.extra.append(meeting.kept[at])


def _fused(builder: TapeBuilder, meeting: _Meeting, form: AttentionForm) -> int:
    """Add one fused operation, which keeps only a number per query and head of the scores."""
    out = meeting.out
    if form.rotated and meeting.joint and 3 * out[-1] == builder.shapes[meeting.projected[0]][-1]:
        meeting.keep([builder.tensor(out, builder.low) for _ in range(2)])
    builder.tape.doubt_bytes += meeting.rows * meeting.heads * meeting.tokens * builder.low
    statistics = builder.tensor((meeting.rows, meeting.heads), 4)
    output = builder.tensor(out, builder.low)
    builder.add(
        Op(
            inputs=tuple(meeting.projected), output=output, saved=(*meeting.kept, output, statistics),
            extra=(*meeting.extra, statistics), group=Group.ATTENTION,
        )
    )  # fmt: skip
    return output


def _eager(builder: TapeBuilder, meeting: _Meeting, form: AttentionForm) -> int:
    """Add the scores, the operations on them, and the product with the values as separate operations."""
    first = builder.shapes[meeting.projected[0]]
    shape = form.scores or (meeting.rows, meeting.heads, meeting.tokens)
    if form.scores and len(first) == 3 and shape[0] < first[0]:
        shape = (first[0], *shape[1:])  # windows folded into the batch
    if form.cosine:  # of a joint projection values are copied as well
        meeting.keep([builder.tensor(meeting.out, builder.low) for _ in range(3 if meeting.joint else 2)])
    raw = builder.tensor(shape, builder.low)
    builder.tape.score_bytes += builder.tape.sizes[raw]
    builder.add(
        Op(
            inputs=tuple(meeting.projected), output=raw, saved=tuple(meeting.kept), extra=tuple(meeting.extra),
            group=Group.ATTENTION,
        )
    )  # fmt: skip
    weights = raw
    for kind in _on_scores(builder, form):
        weights = builder.operation(kind, weights, shape)
    output = builder.tensor(meeting.out, builder.low)
    read = builder.autocast(weights)
    builder.add(
        Op(
            inputs=(weights,), output=output, saved=(read,), extra=() if read == weights else (read,),
            group=Group.ATTENTION,
        )
    )  # fmt: skip
    return output


def _on_scores(builder: TapeBuilder, form: AttentionForm) -> list[Kind]:
    """Return the operations on materialized scores, in order."""
    return [
        *[_SCALED] * (form.scaled or form.cosine),
        *[_PROJECTED] * ((form.over + 1) // 2),
        KINDS["softmax"],
        *[_PROJECTED] * (form.over // 2),
        *[KINDS["concatenate"]] * builder.amp,
        *[_MIXED] * form.mixed,
        *[KINDS["dropout"]] * form.dropout,
    ]


def _spelt_out(builder: TapeBuilder, meeting: _Meeting, form: AttentionForm) -> int:
    """Add attention as PyTorch computes it if no fused form takes it, always in 32 bits.

    Queries and keys are scaled into copies and values copied for the matrix product, each for all heads; the
    projections are not kept (aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math).
    """
    out = meeting.out
    if form.pooled > 1:
        out = (*out[:-2], out[-2] // form.pooled, out[-1])
    lengths = [builder.shapes[number][:-1] for number in meeting.projected]
    whole = [(*length, out[-1]) for length in (lengths * 3 if meeting.joint else lengths)]
    fewer = out != whole[0]  # query pooling keeps its input
    whole[0] = out
    queries, keys, *values = [builder.tensor(each, 4) for each in whole]
    shape = (meeting.rows // form.pooled, meeting.heads, meeting.tokens)
    raw = builder.tensor(shape, 4)
    builder.tape.score_bytes += builder.tape.sizes[raw]
    made = (queries, keys)
    kept = (*meeting.projected, *made) if fewer else made
    builder.add(
        Op(
            inputs=tuple(meeting.projected), output=raw, saved=kept, extra=(*made, *values),
            group=Group.ATTENTION,
        )
    )  # fmt: skip
    weights = builder.operation(KINDS["softmax"], raw, shape)
    if form.dropout:
        weights = builder.operation(KINDS["dropout"], weights, shape)
    output = builder.tensor(out, builder.low)
    builder.add(Op(inputs=(weights,), output=output, saved=(weights, *values), group=Group.ATTENTION))
    return output
