"""Select rows by group; a model has few kinds, so each kind is looked up once, not each row."""

from __future__ import annotations

from collections.abc import Sequence

from gpumemnet.names import Group
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import Layer


def of_group(layers: Sequence[Layer], group: Group) -> list[Layer]:
    """Return the rows whose kind is of a group, in their order.

    Args:
        layers: All rows.
        group: The group.
    """
    wanted = {kind for kind in {layer.kind for layer in layers} if kinds.group_of(kind) is group}
    return [layer for layer in layers if layer.kind in wanted] if wanted else []
