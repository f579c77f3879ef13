"""Sort the modules of `print(model)` into running order: the text has the order of definition.

Containers are taken apart here, from the outside in; block_order.py orders the contents of one.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumemnet.names import Group
from gpumemnet.summaries.shapes.block_order import ATTENTION, Role, Unit, ordered
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import Layer

_ROLES = {
    Group.ATTENTION: Role.ATTENTION,
    Group.LAYERNORM: Role.NORM,
    Group.LINEAR: Role.LINEAR,
    Group.ACTIVATION: Role.ACTIVATION,
    Group.DROPOUT: Role.DROPOUT,
    Group.VIEW: Role.VIEW,
    Group.BATCHNORM: Role.BATCHNORM,
}
_IMAGE_NORMS = ("groupnorm", "layernorm2d")


def arrange(layers: Sequence[Layer], depth: int = 0) -> list[Layer]:
    """Order the layers of one container.

    Args:
        layers: Leaves inside it, in printed order.
        depth: Number of enclosing containers.

    Returns:
        The same layers in running order; activations that a block defines once and uses often are repeated.
    """
    units: list[Unit] = []
    names: list[str] = []
    at = 0
    while at < len(layers):
        layer = layers[at]
        if len(layer.path) <= depth:
            units.append((_leaf_role(layer), [layer]))
            names.append(layer.name)
            at += 1
            continue
        end = at
        while (
            end < len(layers)
            and len(layers[end].path) > depth
            and layers[end].path[depth] == layer.path[depth]
        ):
            end += 1
        names.append(layer.path[depth][1])
        units.append(
            (_container_role(layers[at:end], *layer.path[depth]), arrange(layers[at:end], depth + 1))
        )
        at = end
    if all(name.partition("#")[0].isdigit() for name in names):
        return [layer for _, part in units for layer in part]  # nn.Sequential and similar run as printed
    container = layers[0].path[depth - 1] if depth and layers else ("", "")
    return [layer for _, part in ordered(units, container[0]) for layer in part]


def _leaf_role(layer: Layer) -> Role:
    if layer.kind in _IMAGE_NORMS:
        return Role.OTHER
    return _ROLES.get(kinds.group_of(layer.kind), Role.OTHER)


def _container_role(layers: Sequence[Layer], cls: str, name: str) -> Role:
    groups = {kinds.group_of(layer.kind) for layer in layers}
    if (ATTENTION.search(cls) or ATTENTION.search(name)) and groups & {Group.LINEAR, Group.ATTENTION}:
        return Role.ATTENTION
    if Group.LINEAR in groups and not groups & {Group.CONV, Group.ATTENTION} and len(layers) < 9:
        return Role.LINEAR
    return Role.BLOCK
