"""Add attention that rows show: between the projections of a site, or whole in one row."""

from __future__ import annotations

import re

from gpumemnet.names import Group, Source
from gpumemnet.summaries.graph import inputs
from gpumemnet.summaries.graph.attention.forms import AttentionForm, attend
from gpumemnet.summaries.graph.attention.site import AttentionSite
from gpumemnet.summaries.graph.builder import TapeBuilder
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.kinds import KINDS
from gpumemnet.summaries.texts.model_names import drops_by_function, mixes_positions, rotates
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.summaries.texts.settle import is_idle

_IMAGE = 4
_LIBRARY_MODEL = r"For[A-Z]\w+$|LMHeadModel$"
"""End of the class names of transformers' models with a head."""


def at_site(
    builder: TapeBuilder, site: AttentionSite, projected: list[int], layers: tuple[Layer, ...], *, drops: bool
) -> int:
    """Add the attention of a site found in the rows.

    Args:
        builder: The tape so far.
        site: The site.
        projected: Queries, keys, values; one tensor if they are joint.
        layers: The rows.
        drops: Whether the model drops anything.

    Returns:
        The output tensor.
    """
    shown = None if site.scores is None else layers[site.scores]
    dropped = shown is not None and kinds.group_of(shown.kind) is Group.DROPOUT and not is_idle(shown)
    # If no row shows the scores and the model drops elsewhere, a function drops materialized scores.
    dropped = dropped or (shown is None and not site.drops and drops) or drops_by_function(site.container)
    _see_pixels_as_tokens(builder, projected)
    spelt_out = site.spelt_out or _repeats_keys(builder, site, projected)
    form = AttentionForm(
        eager=site.eager,
        dropout=drops if spelt_out else dropped,
        scores=None if shown is None else _scores(builder, shown, projected[0]),
        width=site.width,
        heads=site.heads,
        mixed=mixes_positions(site.container),
        over=len(site.over),
        spelt_out=spelt_out,
        keys=site.keys,
        cosine=site.cosine,
        rotated=builder.rotates or rotates(site.container),
        pooled=site.pooled,
    )
    made = attend(builder, projected, form)
    if site.windows:
        shape, op = builder.shapes[projected[0]], builder.tape.ops[-1]
        copies = builder.tensor((*shape[:-1], site.windows * shape[-1]), builder.low)
        op.saved, op.extra = (*op.saved, copies), (*op.extra, copies)
    return made


def _scores(builder: TapeBuilder, shown: Layer, queries: int) -> tuple[int, ...]:
    """Return the shape of scores that a row shows; torchsummary hides windows folded into the batch."""
    shape, folded = builder.scaled(shown.output_shapes[0]), builder.shapes[queries][0]
    hides = builder.format == Source.TORCHSUMMARY and len(shape) == _IMAGE and folded % shape[0] == 0
    return (folded, *shape[1:]) if hides else shape


def _repeats_keys(builder: TapeBuilder, site: AttentionSite, projected: list[int]) -> bool:
    """Return whether fused attention must repeat its keys for several query heads, in 32 bits.

    transformers' models leave that to PyTorch, whose only fused form with repetition needs 16 bits.
    """
    if site.eager or builder.low == 2 or not re.search(_LIBRARY_MODEL, builder.root):
        return False
    width = builder.shapes[projected[0]][-1]
    if len(projected) == 1:
        return site.width is not None and site.width < width < 2 * site.width
    return builder.shapes[projected[1]][-1] < (site.width or width)


def _see_pixels_as_tokens(builder: TapeBuilder, projected: list[int]) -> None:
    """Treat images made by convolutions as [batch, pixels, channels], as attention reads them."""
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
    # Queries, keys and values are copied out of the joint projection before use.
    copied = builder.operation(KINDS["concatenate"], joint, (*shape[:-1], 3 * width))
    inside_layer = any(cls.lower().startswith(("transformer", "encoderblock")) for cls, _ in layer.path)
    shows_weights = len(layer.output_shapes) > 1
    eager = shows_weights or not inside_layer
    mixed = attend(builder, [copied], AttentionForm(eager=eager, dropout=True))
    rows = builder.operation(KINDS["concatenate"], mixed, builder.shapes[mixed])
    return builder.operation(KINDS["linear"], rows, shape)
