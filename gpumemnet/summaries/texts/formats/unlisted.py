"""Add projections that run as functions inside attention: torchsummary has no row or weights for them.

torchinfo shows them by a container's own parameters. Here they are inferred: attention with only an output projection
has a joint one before it (BEiT, EVA), and torchvision's Swin runs both as functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumemnet.names import Group
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.summaries.texts.widths import fan_in

_SHIFTED = "shiftedwindowattention"
_WINDOW, _HEAD = 7, 32
"""Window side and head width in all of torchvision's models of that class."""
_TOKENS, _TABLE = 3, 4
_ATTENTION = ("attention", "attn")
"""Endings of class names of such attention; other parts may have a single linear layer, too."""


def added(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return the rows with the missing ones added.

    Args:
        layers: Nested rows, each attention's row after its contents.
    """
    found: list[Layer] = []
    for layer in layers:
        if layer.is_block and layer.kind.endswith(_ATTENTION):
            inside = (*layer.path, (layer.name.rpartition("-")[0], layer.name))
            begin = len(found)
            while begin and found[begin - 1].path[: len(inside)] == inside:
                begin -= 1
            if layer.kind == _SHIFTED and begin == len(found):
                found.append(_shifted(layer))
                continue
            if (joint := _joint(found[begin:])) is not None:
                found.insert(begin, joint)
        found.append(layer)
    return tuple(found)


def _joint(inside: Sequence[Layer]) -> Layer | None:
    """Return the row of the joint projection, if the output projection is the only one of tokens inside.

    Layers that make a bias from distances have four dimensions (Swin v2).
    """
    projections = [row for row in inside if kinds.group_of(row.kind) in (Group.LINEAR, Group.CONV)]
    projections = [row for row in projections if row.output_shapes and len(row.output_shapes[0]) != _TABLE]
    if len(projections) != 1 or any(row.is_block for row in inside) or projections[0].kind != "linear":
        return None
    output = projections[0]
    shape = output.output_shapes[0]
    width = shape[-1] or 0
    if len(shape) != _TOKENS or not width or fan_in(output.params, width) != width:
        return None
    return Layer(
        kind="linear",
        name=output.name,
        path=output.path,
        output_shapes=((*shape[:-1], 3 * width),),
        params=3 * width * width,
        line=output.line,
    )


def _shifted(layer: Layer) -> Layer:
    """Return the row of torchvision's window attention as torchinfo prints it: with its own weights."""
    width = (layer.output_shapes[0][-1] or 0) if layer.output_shapes else 0
    table = (2 * _WINDOW - 1) ** 2 * (width // _HEAD)
    return Layer(
        kind=layer.kind,
        name=layer.name.replace("-", ":"),
        path=layer.path,
        output_shapes=layer.output_shapes,
        params=4 * width * width + 4 * width + table,
        line=layer.line,
    )
