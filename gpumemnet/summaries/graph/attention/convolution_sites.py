"""Find attention on images with 1x1 convolutions for queries, keys and values (BoTNet, HaloNet, SAGAN)."""

from __future__ import annotations

import math

from gpumemnet.names import Group
from gpumemnet.summaries.graph.attention.site import AttentionSite, ContainerPath
from gpumemnet.summaries.graph.attention.sites import is_attention
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import Layer, Shape
from gpumemnet.summaries.texts.widths import fan_in

_IMAGE = 4
"""Dimensions of a batch of images."""
_NEAR = 12
"""Maximum distance in rows to a convolution's input if no row shows it."""


def find(layers: tuple[Layer, ...]) -> dict[int, AttentionSite]:
    """Find such attention.

    Args:
        layers: In running order.

    Returns:
        Sites by the index of their last projection; containers with linear layers are omitted.
    """
    groups: dict[ContainerPath, list[int]] = {}
    others: set[ContainerPath] = set()
    for index, layer in enumerate(layers):
        group = kinds.group_of(layer.kind)
        if not layer.runs or layer.is_block or group not in (Group.LINEAR, Group.CONV):
            continue
        depth = max((at for at, (cls, name) in enumerate(layer.path) if is_attention(cls, name)), default=-1)
        path = layer.path[: depth + 1]
        if depth >= 0 and group is Group.LINEAR:
            others.add(path)
        elif depth >= 0 and _one_by_one(layers, index):
            groups.setdefault(path, []).append(index)
    sites = [_site(layers, path, found) for path, found in groups.items() if path not in others]
    return {site.projections[-1]: site for site in sites if site is not None}


def _one_by_one(layers: tuple[Layer, ...], index: int) -> bool:
    """Return whether a convolution only mixes the channels of each pixel of an image."""
    layer = layers[index]
    ins, outs = _reads(layers, index), _first(layer.output_shapes)
    if len(ins) != _IMAGE or len(outs) != _IMAGE or ins[2:] != outs[2:] or math.prod(outs[2:]) <= 1:
        return False
    return fan_in(layer.params, outs[1]) == ins[1]


def _reads(layers: tuple[Layer, ...], index: int) -> tuple[int, ...]:
    """Return a convolution's input shape: shown, or of an earlier image with as many channels and pixels.

    Only a 1x1 kernel has as many input features as channels.
    """
    layer = layers[index]
    made = _first(layer.output_shapes)
    if layer.input_shapes or len(made) != _IMAGE:
        return _first(layer.input_shapes)
    like = (made[0], fan_in(layer.params, made[1]), *made[2:])
    before = (_first(row.output_shapes) for row in reversed(layers[max(index - _NEAR, 0) : index]))
    return next((shape for shape in before if shape == like), ())


def _site(layers: tuple[Layer, ...], path: ContainerPath, found: list[int]) -> AttentionSite | None:
    """Return the attention of a module from its 1x1 convolutions; None if they do not form attention."""
    reads = [_reads(layers, index)[1] for index in found]
    makes = [_first(layers[index].output_shapes)[1] for index in found]
    if makes[0] == 3 * reads[0]:
        projections: tuple[int, ...] = (found[0],)
    elif len(found) >= 3 and reads[0] == reads[1] == reads[2] and 0 < makes[1] <= makes[0]:
        projections = tuple(found[:3])
    elif len(found) == 2 and reads[0] == reads[1] and makes[0] < makes[1]:
        projections = tuple(found)
    else:
        return None
    width = makes[0] // 3 if len(projections) == 1 else makes[0]
    pixels = math.prod(_first(layers[projections[0]].output_shapes)[2:])
    batch = _first(layers[projections[0]].output_shapes)[0]
    scores = _scores(layers, path, projections[-1], batch * pixels, width)
    return AttentionSite(
        projections=projections, scores=scores, eager=scores is not None, container=path[-1][0]
    )


def _scores(
    layers: tuple[Layer, ...], path: ContainerPath, after: int, queries: int, width: int
) -> int | None:
    """Return the row that shows scores: one number per query and key of each head."""
    for at in range(after + 1, len(layers)):
        layer = layers[at]
        if layer.path[: len(path)] != path:
            return None
        made, read = _first(layer.output_shapes), _first(layer.input_shapes)
        heads, rest = divmod(math.prod(made[:-1]), max(queries, 1))
        shows = layer.kind == "softmax" or (read and made and read[-1] != made[-1])
        if shows and len(made) > 2 and not rest and heads and width % heads == 0 and made[-1] > 1:
            return at
    return None


def _first(shapes: tuple[Shape, ...]) -> tuple[int, ...]:
    return tuple(dim or 1 for dim in shapes[0]) if shapes else ()
