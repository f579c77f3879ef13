"""Containers in the text: their ends, and operations inside that the text does not show."""

from __future__ import annotations

import math

from gpumemnet.names import Group, Source
from gpumemnet.summaries.collapsed_blocks.scale import enclosing_shapes
from gpumemnet.summaries.graph import branches, functional_ops, inputs, stems
from gpumemnet.summaries.graph.builder import TapeBuilder
from gpumemnet.summaries.graph.tape import Op
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import Layer, ModelSummary

_MOST_SCALES = 3
"""XCiT scales three branches of a block, CaiT and BEiT two."""


def hidden_layers(
    builder: TapeBuilder, layer: Layer, summary: ModelSummary, *, times: int
) -> tuple[Layer, ...] | None:
    """Return the layers that a container's row probably represents.

    Args:
        builder: The tape so far.
        layer: A container's row with parameters, whose contents the text does not show.
        summary: The text around it.
        times: Number of convolution blocks that the row represents.

    Returns:
        Layers with shapes, the batch size applied; None if no shape can be determined.
    """
    stated = layer.output_shapes or enclosing_shapes(summary.layers, layer)
    if summary.format == Source.TORCHSUMMARY or (builder.current < 0 and not stated):
        return None
    from gpumemnet.summaries.collapsed_blocks import expand, stacks  # few texts need them

    builder.shown = builder.shown or expand.shown(summary.layers)
    outs = builder.scaled(stated[0]) if stated else builder.shapes[builder.current]
    entry = builder.entries.get(layer.path)
    made = builder.current >= 0 and builder.shapes[builder.current] == outs
    if (
        entry is not None
        and made
        and (layers := stacks.shortcut(layer.params or 0, builder.shapes[entry], outs))
    ):
        return tuple(inner._replace(path=layer.path) for inner in layers)
    if layer.input_shapes:
        ins = builder.scaled(layer.input_shapes[0])
    elif builder.current >= 0:
        ins = builder.shapes[builder.current]
    else:
        ins = stems.coloured(builder, outs) or outs
    return expand.expand(
        layer,
        ins,
        outs,
        builder.shown,
        classes=(_class_of(layer), *(cls for cls, _ in reversed(layer.path))),
        times=times,
    )


def ended(builder: TapeBuilder, layer: Layer) -> int:
    """End a container, which adds a sum that saves nothing new; its output may be more than its last layer's.

    Args:
        builder: The tape so far.
        layer: The container's row.

    Returns:
        The container's output tensor.
    """
    current = builder.current
    if current < 0 or not layer.output_shapes:
        return current
    out = inputs.unfolded(builder, layer, kinds.KINDS["identity"], builder.scaled(layer.output_shapes[0]))
    same = builder.elements[current] == math.prod(out)
    if len(out) > 2 and not same:
        return functional_ops.gate(builder, out) or functional_ops.joined(builder, out)
    if same and (scales := _scales(layer, out)):
        return _scaled(builder, current, scales)
    return (
        branches.added(builder, (*layer.path, (_class_of(layer), layer.name)), current) if same else current
    )


def _scales(layer: Layer, out: tuple[int, ...]) -> int:
    """Return the number of branches of a block with channel scales (LayerScale), by the block's own parameters."""
    own = layer.args.get("own_params")
    for channels in {*out[1:2], *out[-1:]}:
        if isinstance(own, int) and channels > 1 and own % channels == 0 and own // channels <= _MOST_SCALES:
            return own // channels
    return 0


def _scaled(builder: TapeBuilder, current: int, scales: int) -> int:
    """Scale the output of each branch of a block, which saves it unscaled."""
    shape, item = builder.shapes[current], builder.items[current]
    others = tuple(builder.tensor(shape, item) for _ in range(scales - 1))
    scaled = builder.tensor(shape, item)
    builder.add(
        Op(inputs=(current,), output=scaled, saved=(current, *others), extra=others, group=Group.FUNCTION)
    )
    return scaled


def _class_of(layer: Layer) -> str:
    """Return the class of a container's row, as used in the paths of the layers inside."""
    return layer.name.split(":")[0].split(" ")[0].split("-")[0]
