"""Order the modules of one block as they run.

Only the order inside one block matters for memory: norm, attention, norm, feed-forward. A network that normalises
after instead of before keeps the same tensors, so one order serves both. Cross-attention is ordered as self-attention.
"""

from __future__ import annotations

import re

from gpumemnet.names import StrEnum
from gpumemnet.summaries.texts.records import Layer
from gpumemnet.summaries.texts.widths import widening

ATTENTION = re.compile(r"att|mha", re.IGNORECASE)
"""Pattern in class and attribute names of attention."""
_INNER_DROPOUT = re.compile(r"att", re.IGNORECASE)
_DROPS_BETWEEN = re.compile("T5|TransformerEncoderLayer|TransformerDecoderLayer")
"""Classes with a dropout between the two feed-forward layers; PyTorch's activate there by a function."""
_FOLDED = re.compile(r"BasicBlock|Bottleneck", re.IGNORECASE)


class Role(StrEnum):
    """Role of a direct child in a container."""

    NORM = "norm"
    ATTENTION = "attention"
    LINEAR = "linear"
    ACTIVATION = "activation"
    DROPOUT = "dropout"
    VIEW = "view"
    BATCHNORM = "batchnorm"
    BLOCK = "block"
    OTHER = "other"


Unit = tuple[Role, list[Layer]]
"""A direct child of a container: its role and its layers."""

_FEED_FORWARD = {Role.LINEAR, Role.ACTIVATION, Role.DROPOUT, Role.NORM, Role.VIEW}


def ordered(units: list[Unit], container: str) -> list[Unit]:
    """Order the children of one container.

    Args:
        units: Its children, as printed.
        container: Its class name; empty for the model itself.
    """
    roles = [role for role, _ in units]
    if ATTENTION.search(container) and roles.count(Role.LINEAR) >= 2 and Role.ATTENTION not in roles:
        return _attention(units)
    if Role.ATTENTION in roles and Role.NORM in roles and Role.LINEAR in roles:
        return _transformer(units)
    if roles.count(Role.LINEAR) >= 2 and set(roles) <= _FEED_FORWARD:
        return _feed_forward(units)
    if _FOLDED.search(container) and roles.count(Role.ACTIVATION) == 1 and roles.count(Role.BATCHNORM) > 1:
        return _residual(units)
    return units


def _of(units: list[Unit], *roles: Role) -> list[Unit]:
    return [unit for unit in units if unit[0] in roles]


def _attention(units: list[Unit]) -> list[Unit]:
    """Order projections of queries, keys, values; their norms; the output projection; its dropout."""
    linear = _of(units, Role.LINEAR)
    first = [unit for unit in linear if not _is_output(unit[1][0])]
    last = [unit for unit in linear if _is_output(unit[1][0])]
    if not last and len(linear) > 3:
        first, last = linear[:3], linear[3:]
    # A dropout printed first belongs to the scores, which fused attention does not show.
    dropouts = _of(units, Role.DROPOUT)
    after = [unit for unit in dropouts if not _INNER_DROPOUT.search(unit[1][0].name) and len(dropouts) > 1]
    rest = [unit for unit in units if unit[0] not in (Role.LINEAR, Role.DROPOUT)]
    return [*first, *last, *after, *rest]


def _is_output(layer: Layer) -> bool:
    name = layer.name.lower()
    return name in (
        "o",
        "o_proj",
        "out_proj",
        "out_lin",
        "dense",
        "c_proj",
        "proj",
        "out",
        "wo",
        "output",
        "resid_proj",
    )


def _transformer(units: list[Unit]) -> list[Unit]:
    norms, attentions = _of(units, Role.NORM), _of(units, Role.ATTENTION)
    dropouts = _of(units, Role.DROPOUT)
    linear = _of(units, Role.LINEAR, Role.ACTIVATION)
    rest = [
        unit
        for unit in units
        if unit[0] not in (Role.NORM, Role.ATTENTION, Role.DROPOUT, Role.LINEAR, Role.ACTIVATION)
    ]
    inner = len([unit for unit in linear if unit[0] is Role.LINEAR and len(unit[1]) == 1])
    found: list[Unit] = []
    for number, attention in enumerate(attentions):
        found += norms[number : number + 1]
        found.append(attention)
        # PyTorch's layers define the feed-forward's dropout first; the others follow in order of use.
        found += (
            dropouts[number + 1 : number + 2]
            if len(dropouts) > len(attentions)
            else dropouts[number : number + 1]
        )
    found += norms[len(attentions) :]
    feed = (
        _feed_forward([*linear, *dropouts[:1]])
        if inner >= 2 and len(dropouts) > len(attentions)
        else _feed_forward(linear)
    )
    left = dropouts[len(attentions) + 1 :]
    return [*found, *feed, *left, *rest]


def _feed_forward(units: list[Unit]) -> list[Unit]:
    """Order widening layers, activation, narrowing layer, dropout; a second widening layer is the gated branch."""
    linear, acts = _of(units, Role.LINEAR), _of(units, Role.ACTIVATION)
    dropouts, rest = _of(units, Role.DROPOUT), _of(units, Role.NORM, Role.VIEW)
    if len(linear) == 1 or any(len(part) > 1 for _, part in linear):
        return [*linear[:1], *acts, *linear[1:], *dropouts, *rest]
    wide = [unit for unit in linear if widening(unit[1][0], unknown=1.0) >= 1]
    narrow = [unit for unit in linear if widening(unit[1][0], unknown=1.0) < 1]
    between = dropouts[:1] if _DROPS_BETWEEN.search(_around(units)) else []
    if not narrow or not (acts or between):
        return units
    return [*wide[:1], *acts, *wide[1:], *between, *narrow, *dropouts[len(between) :], *rest]


def _around(units: list[Unit]) -> str:
    path = units[0][1][0].path if units[0][1] else ()
    return path[-1][0] if path else ""


def _residual(units: list[Unit]) -> list[Unit]:
    """Order a block that defines its activation once and calls it after every norm and after the sum."""
    activation = _of(units, Role.ACTIVATION)[0]
    shortcut = [unit for unit in units if unit[0] is Role.BLOCK]
    found: list[Unit] = []
    norms = len(_of(units, Role.BATCHNORM))
    for unit in units:
        if unit is activation or unit in shortcut:
            continue
        found.append(unit)
        if unit[0] is Role.BATCHNORM:
            norms -= 1
            if norms:
                found.append(activation)
    return [*found, *shortcut, activation]
