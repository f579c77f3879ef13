"""The tree that `print(model)` shows, plain or with parameter counts behind each line.

It lists modules in the order of their definition, with their arguments and without any shape.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache

from gpumemnet.errors import SummaryError
from gpumemnet.names import Group, Source
from gpumemnet.texts import arguments, kinds
from gpumemnet.texts.formats import text
from gpumemnet.texts.records import RECREATE, Layer, ModelSummary

_LINE = re.compile(
    r"^\s*(?:\((?P<name>[^()]{1,80})\): )?(?:(?P<times>\d{1,5}) x )?(?P<cls>[A-Za-z_][\w.]*)\((?P<rest>.*)$"
)
_PARAMETER = re.compile(r"Parameter containing: \[\S{1,60} of size ([\dx]{0,80})")
_PARAMETRIZED = "Parametrized"
"""Prefix of the class of a layer whose weight is computed (torch.nn.utils.parametrizations); inside is how."""
_COUNT = re.compile(r",\s*(?P<count>[\d,]+) params\s*$")
MAX_DEPTH = 60
_LOOK_EVERY = 64
"""Lines between two looks at how many layers there are."""


@dataclass(slots=True)
class _Node:
    """An open container.

    Attributes:
        cls: Class name.
        name: Local name, "" for the root.
        times: How often it is repeated.
        line: Where it begins.
        path: It and all around it, from the outside in.
        leaves: Its leaves so far.
        arguments: What it says of itself before its children.
    """

    cls: str
    name: str
    times: int
    line: int
    path: tuple[tuple[str, str], ...]
    leaves: list[Layer] = field(default_factory=list)
    arguments: str = ""


def parse(source: str, *, path: str) -> ModelSummary:
    """Parse the text of `print(model)`.

    Args:
        source: The whole text.
        path: File, for messages.

    Returns:
        The summary; its layers have arguments and no shapes.

    Raises:
        SummaryError: Parentheses do not match, or it holds no layers.
    """
    stack: list[_Node] = []
    done: list[Layer] = []
    totals: dict[str, int] = {}
    root_count: int | None = None
    for number, raw in text.lines(source):
        if not raw.strip():
            continue
        if total := text.parse_total(raw):
            totals.setdefault(*total)
            continue
        counted = _COUNT.search(raw)
        line = raw[: counted.start()] if counted else raw
        count = text.parse_count(counted.group("count")) if counted else None
        if line.strip() == ")":
            if not stack:
                raise SummaryError(path=path, line=number, problem="one ')' too many", fix=RECREATE)
            done = _close(stack, count, done, path=path, line=number)
            root_count = count
            continue
        match = _LINE.match(line)
        if done and not stack:
            continue
        leaves = stack[-1].leaves if stack else done
        path_here = stack[-1].path if stack else ()
        if kept := _PARAMETER.findall(line):
            params = sum(math.prod(map(int, filter(None, sizes.split("x")))) for sizes in kept)
            leaves.append(
                Layer(kind="parameter", name="Parameter", path=path_here, params=params, line=number)
            )
        elif not match:
            if stack and not stack[-1].leaves:
                stack[-1].arguments = line.strip()
        elif (rest := match.group("rest").rstrip()).endswith(")"):
            leaf = _leaf(match.group("cls"), match.group("name"), rest[:-1], count, path_here, number)
            leaves.extend([leaf] * _times(match))
        else:
            if len(stack) >= MAX_DEPTH:
                raise SummaryError(path=path, line=number, problem="nested too deeply", fix=RECREATE)
            cls, name = match.group("cls"), match.group("name") or ""
            stack.append(_Node(cls, name, _times(match), number, path=(*path_here, (cls, name))))
        if not number % _LOOK_EVERY and sum(len(node.leaves) for node in stack) > text.MAX_LAYERS:
            raise SummaryError(path=path, line=number, problem="too many layers", fix=RECREATE)
    if stack:
        raise SummaryError(
            path=path,
            line=stack[-1].line,
            problem=f"{stack[-1].cls}( is never closed",
            fix="the text is cut off: " + RECREATE,
        )
    if not done:
        raise SummaryError(path=path, problem="it shows no layers", fix=RECREATE)
    if root_count is not None and totals.get("total", 0) > root_count:
        totals = {}  # printed through a wrapper (DataParallel) that counts what it holds once per level
    return ModelSummary(
        format=Source.MODULE_REPR,
        layers=tuple(done),
        total_params=totals.get("total", root_count),
        trainable_params=totals.get("trainable"),
    )


def _times(match: re.Match[str]) -> int:
    return max(int(match.group("times") or 1), 1)


def _close(stack: list[_Node], count: int | None, done: list[Layer], *, path: str, line: int) -> list[Layer]:
    """Fold a finished container into the one around it."""
    node = stack.pop()
    cls, name, leaves, opened = node.cls, node.name, node.leaves, node.line
    around = node.path[:-1]
    kind = kinds.canonical(cls)
    own = None if count is None else count - sum(leaf.params or 0 for leaf in leaves)
    if kind == "multiheadattention":
        leaves = [_attention(leaves, name, around, count, opened)]
    elif cls.startswith(_PARAMETRIZED) and node.arguments:
        plain = cls.removeprefix(_PARAMETRIZED)
        leaves = [_leaf(plain, name, node.arguments, count, around, opened)]
    elif kinds.is_known(kind) and node.arguments:  # a norm that holds its activation (timm)
        shown = own if own and own > 0 else None
        leaves = [_leaf(cls, name, node.arguments, shown, (*around, (cls, name)), opened), *leaves]
    elif own and own > 0:
        leaves.append(
            Layer(kind="parameter", name=name or cls, path=(*around, (cls, name)), params=own, line=opened)
        )
    elif not leaves and not kinds.is_container(kind):
        leaves.append(Layer(kind=kind, name=name or cls, path=around, params=count, line=opened))
    if len(leaves) * node.times > text.MAX_LAYERS:
        raise SummaryError(path=path, line=line, problem="too many layers", fix=RECREATE)
    if node.times > 1:
        leaves = [_renumbered(leaf, len(around), repeat) for repeat in range(node.times) for leaf in leaves]
    if not stack:
        return leaves
    stack[-1].leaves.extend(leaves)
    return done


def _renumbered(leaf: Layer, depth: int, repeat: int) -> Layer:
    """Tell the repeats of a "12 x Block" apart by their local name."""
    if len(leaf.path) <= depth:
        return leaf
    cls, name = leaf.path[depth]
    path = (*leaf.path[:depth], (cls, f"{name}#{repeat}"), *leaf.path[depth + 1 :])
    return Layer(
        kind=leaf.kind, name=leaf.name, path=path, param_shapes=leaf.param_shapes, params=leaf.params,
        trainable=leaf.trainable, args=leaf.args, line=leaf.line,
    )  # fmt: skip


def _leaf(
    cls: str, name: str | None, inside: str, count: int | None, path: tuple[tuple[str, str], ...], line: int
) -> Layer:
    kind = kinds.canonical(cls)
    args, shapes = _read(kind, inside)
    params = sum(map(math.prod, shapes))
    if count is not None and count != params:
        params, shapes = count, ()
    return Layer(
        kind=kind, name=name or cls, path=path, param_shapes=shapes, params=params,
        args=args, line=line,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _read(kind: str, inside: str) -> tuple[dict[str, object], tuple[tuple[int, ...], ...]]:
    """Read a layer's arguments, and the shapes of its parameters that follow; many layers of a network are alike."""
    group = kinds.group_of(kind)
    shown = arguments.parse_arguments(inside)
    args = arguments.name_positions(kind, group, shown)
    return args, arguments.parameter_shapes(kind, group, args)


def _attention(
    leaves: list[Layer], name: str, around: tuple[tuple[str, str], ...], count: int | None, line: int
) -> Layer:
    """nn.MultiheadAttention prints only its output projection; the input projections follow from its width."""
    out = next((leaf for leaf in leaves if kinds.group_of(leaf.kind) is Group.LINEAR), None)
    width = arguments.integer(out.args, "out_features") if out else 0
    bias = out is None or out.args.get("bias") is not False
    shapes = (
        ((3 * width, width), (3 * width,), (width, width), (width,))
        if bias
        else ((3 * width, width), (width, width))
    )
    return Layer(
        kind="multiheadattention", name=name or "MultiheadAttention", path=around, param_shapes=shapes,
        params=count if count is not None else sum(math.prod(shape) for shape in shapes),
        args={"embed_dim": width}, line=line,
    )  # fmt: skip
