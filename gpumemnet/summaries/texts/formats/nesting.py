"""Find the containers of each torchsummary row: containers follow their contents, and no depth is shown.

A container holds rows that end before it. Its start follows from the others: a class that first came after another is
not inside that one, no class is inside itself, and all containers of a class begin alike. torchinfo's text of the same
models is the reference (docs/measurements/2026-11-analytical-model.md).

Known limitations:
    - Sequential, ModuleList and the model itself have no rows, so their rows stand one level higher.
    - Rows that come once before the first block of a class, or between two, may be taken into the next block.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from gpumemnet.names import Group
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.records import Layer

Kinds = tuple[str, ...]
_ROOT = ("", "")
"""The model, which has no row."""
_PART = r"(?i:att|mhs?a$|gpsa|xca$|mlp$|feedforward|ffn)"
"""Parts of a block: none is inside another, and the block normalizes their inputs."""
_NORMS = (Group.LAYERNORM, Group.BATCHNORM)
_BETWEEN = ("identity", "droppath", "dropout")
"""Rows between the parts of a block."""
_NORMS_THAT_ACTIVATE = ("batchnormact2d", "layernormact2d", "layernormact", "groupnormact")
_MOST_INSIDE = 2
"""Maximum number of their inner rows: a dropout and an activation (timm)."""
_MOST_CLASSES = 200
"""More classes than any model has; a text with more is not analysed."""


def nested(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Give each row the path of its containers.

    Args:
        layers: The rows in order; `is_block` where one ends a container.

    Returns:
        The rows; unchanged if the text shows no containers.
    """
    first: dict[str, int] = {}
    for at, layer in enumerate(layers):
        if layer.is_block:
            first.setdefault(layer.kind, at)
    if not 0 < len(first) <= _MOST_CLASSES:
        return tuple(layers)
    layers = _norms_first(layers)
    return _with_paths(layers, _starts(layers, first))


def _starts(layers: Sequence[Layer], first: dict[str, int]) -> dict[int, int]:
    """Return the first row of each container, by the container's row.

    Args:
        layers: The rows.
        first: Row where each class of containers first ends.
    """
    words = tuple(layer.kind for layer in layers)
    ends = [at for at, layer in enumerate(layers) if layer.is_block]
    often = Counter(words[at] for at in ends)
    most = {at: _after_what_leads(layers, _earliest(words, first, often, at), at) for at in ends}
    alike: dict[str, set[Kinds]] = defaultdict(set)
    siblings: dict[str, set[Kinds]] = defaultdict(set)  # of them, those since the last of the same class
    bounded: dict[str, set[Kinds]] = defaultdict(set)  # or since another container
    for at, start in most.items():
        inside = words[start:at]
        alike[words[at]].add(inside)
        if start and words[start - 1] in first and not first.keys().isdisjoint(inside):
            (siblings if words[start - 1] == words[at] else bounded)[words[at]].add(inside)
    starts = {}
    for at, start in most.items():
        whole = _lengths(words[start:at], siblings.get(words[at]) or bounded[words[at]])
        length = max(whole) if whole else min(_lengths(words[start:at], alike[words[at]]))
        starts[at] = _after_what_leads(layers, at - length, at)
    return starts


def _earliest(words: Kinds, first: dict[str, int], often: Counter[str], end: int) -> int:
    """Return the first possible row of the container that ends at a row."""
    own, at = words[end], end
    while at > 0 and not (words[at - 1] in first and _outside(words[at - 1], own, first, often)):
        at -= 1
    return at


def _outside(other: str, own: str, first: dict[str, int], often: Counter[str]) -> bool:
    """Return whether a container of one class cannot be in one of another; a single one holds no repeated blocks."""
    if first[other] >= first[own] or (often[own] == 1 < often[other]):
        return True
    return _is_part(other) and _is_part(own)


def _lengths(most: Kinds, known: set[Kinds]) -> list[int]:
    """Return the lengths of a container's possible contents that others of its class also hold."""
    return [n for n in {len(each) for each in known} if n <= len(most) and most[len(most) - n :] in known]


def _is_part(kind: str) -> bool:
    return re.search(_PART, kind) is not None


def _after_what_leads(layers: Sequence[Layer], start: int, end: int) -> int:
    """Return where a container begins, without rows that belong to earlier ones or to the block around it."""
    part = _is_part(layers[end].kind)
    for at in range(start, end):
        kind = layers[at].kind
        if kind not in _BETWEEN and not (part and kinds.group_of(kind) in _NORMS):
            return at
    return end if part else start


def _norms_first(layers: Sequence[Layer]) -> list[Layer]:
    """Move norms before the activation that they hold: they end after it, and normalize first."""
    found = list(layers)
    for at, layer in enumerate(layers):
        if layer.kind not in _NORMS_THAT_ACTIVATE:
            continue
        begin = at
        while begin > max(at - _MOST_INSIDE, 0) and _in_a_norm(found[begin - 1]):
            begin -= 1
        inside = [row._replace(path=(_of(layer),)) for row in found[begin:at]]
        found[begin : at + 1] = [layer, *inside]
    return found


def _in_a_norm(layer: Layer) -> bool:
    return layer.kind in _BETWEEN or kinds.group_of(layer.kind) is Group.ACTIVATION


def _with_paths(layers: Sequence[Layer], starts: dict[int, int]) -> tuple[Layer, ...]:
    """Return the rows with paths, found from the last row to the first: outer containers end after inner ones."""
    made: list[Layer] = []
    around: list[tuple[int, tuple[str, str]]] = []  # start of each, from the outside in
    for at in range(len(layers) - 1, -1, -1):
        while around and at < around[-1][0]:
            around.pop()
        layer = layers[at]
        made.append(layer._replace(path=(_ROOT, *(pair for _, pair in around), *layer.path)))
        if layer.is_block and starts[at] < at:
            around.append((max(starts[at], around[-1][0] if around else 0), _of(layer)))
    return tuple(reversed(made))


def _of(layer: Layer) -> tuple[str, str]:
    """Return a container in the form of paths: "Block-23" is the pair of "Block" and "Block-23"."""
    return layer.name.rpartition("-")[0], layer.name
