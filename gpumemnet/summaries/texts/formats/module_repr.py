"""Parse the tree of `print(model)`, plain or with parameter counts at the end of each line.

It lists modules in the order of their definition, with their arguments and without any shape.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache

from gpumemnet.errors import SummaryError
from gpumemnet.names import Group, Source
from gpumemnet.summaries.texts import arguments, kinds
from gpumemnet.summaries.texts.formats import text
from gpumemnet.summaries.texts.records import RECREATE, Layer, ModelSummary

_LINE = re.compile(
    r"^\s*(?:\((?P<name>[^()]{1,80})\): )?(?:(?P<times>\d{1,5}) x )?(?P<cls>[A-Za-z_][\w.]*)\((?P<rest>.*)$"
)
_PARAMETER = re.compile(r"Parameter containing: \[\S{1,60} of size ([\dx]{0,80})")
_PARAMETRIZED = "Parametrized"
"""Prefix of the class of a layer with a computed weight (torch.nn.utils.parametrizations), shown inside."""
_COUNT = re.compile(r",\s*(?P<count>[\d,]+) params\s*$")
_GAP = r"^\s*(?:\(?(?:\.\.\.|…)|\[?\.\.\.[^()]{0,60}\]?$)"
"""A line in place of layers that someone left out."""
_RANGE = r"^(\d{1,5})(?:-(\d{1,5}))?$"
_SHORTENED = ("...)", "…)")
_WHOLE = "print the whole model again, print(model), and save it unchanged"
_NUMBERED = ("ModuleList", "Sequential")
MAX_DEPTH = 60
_LOOK_EVERY = 64
"""Number of lines between checks of the number of layers."""


@dataclass(slots=True)
class _Node:
    """An open container.

    Attributes:
        cls: Class name.
        name: Local name, "" for the root.
        times: Number of repetitions.
        line: Its first line.
        path: It and its containers, from the outside in.
        leaves: Its leaves so far.
        arguments: Its own arguments, shown before its children.
        last: Number of its last numbered container.
    """

    cls: str
    name: str
    times: int
    line: int
    path: tuple[tuple[str, str], ...]
    leaves: list[Layer] = field(default_factory=list)
    arguments: str = ""
    last: int | None = None


def parse(source: str, *, path: str) -> ModelSummary:
    """Parse the text of `print(model)`; arguments as for `detect.parse_text`.

    Returns:
        The summary; its layers have arguments and no shapes.

    Raises:
        SummaryError: Parentheses do not match, or it holds no layers.
    """
    tree = _Tree(path)
    totals: dict[str, int] = {}
    for number, line in text.lines(source):
        if total := text.parse_total(line):
            totals.setdefault(*total)
        elif line.strip():
            tree.take(line, number)
    layers = tree.whole()
    if tree.count is not None and totals.get("total", 0) > tree.count:
        totals = {}  # printed through a wrapper (DataParallel) that counts its contents once per level
    return ModelSummary(
        format=Source.MODULE_REPR,
        layers=tuple(layers),
        total_params=totals.get("total", tree.count),
        trainable_params=totals.get("trainable"),
    )


@dataclass(slots=True)
class _Tree:
    """State of reading a tree.

    Attributes:
        path: File, for messages.
        open: Containers that are not closed yet, from the outside in.
        done: The rows of the model, once it is closed.
        count: Parameters according to the last closing line; None if not shown.
    """

    path: str
    open: list[_Node] = field(default_factory=list)
    done: list[Layer] = field(default_factory=list)
    count: int | None = None

    def take(self, raw: str, number: int) -> None:
        """Read one line."""
        counted = _COUNT.search(raw)
        line = raw[: counted.start()] if counted else raw
        count = text.parse_count(counted.group("count")) if counted else None
        if line.strip() == ")":
            self._close(count, number)
        elif self.open or not self.done:  # lines after the model do not belong to it
            self._add(line, count, number)

    def whole(self) -> list[Layer]:
        """Return the rows after the last line."""
        if self.open:
            raise SummaryError(
                path=self.path,
                line=self.open[-1].line,
                problem=f"{self.open[-1].cls}( is never closed",
                fix="the text is cut off: " + RECREATE,
            )
        if not self.done:
            raise SummaryError(path=self.path, problem="it shows no layers", fix=RECREATE)
        return self.done

    def _add(self, line: str, count: int | None, number: int) -> None:
        """Read a line that opens a container, or is inside one."""
        match = _LINE.match(line)
        leaves = self.open[-1].leaves if self.open else self.done
        here = self.open[-1].path if self.open else ()
        if kept := _PARAMETER.findall(line):
            params = sum(math.prod(map(int, filter(None, sizes.split("x")))) for sizes in kept)
            leaves.append(Layer(kind="parameter", name="Parameter", path=here, params=params, line=number))
        elif not match:
            if re.match(_GAP, line):
                raise SummaryError(
                    path=self.path, line=number, problem="layers are left out here", fix=_WHOLE
                )
            if self.open and not self.open[-1].leaves:
                self.open[-1].arguments = line.strip()
        elif (rest := match.group("rest").rstrip()).endswith(")"):
            if rest in _SHORTENED:
                problem = f"the layers of {match.group('cls')}(...) are left out here"
                raise SummaryError(path=self.path, line=number, problem=problem, fix=_WHOLE)
            self._check_number(match.group("name") or "", number, holds=False)
            leaf = _leaf(match.group("cls"), match.group("name"), rest[:-1], count, here, number)
            leaves.extend([leaf] * _times(match))
        elif len(self.open) >= MAX_DEPTH:
            raise SummaryError(path=self.path, line=number, problem="nested too deeply", fix=RECREATE)
        else:
            cls, name = match.group("cls"), match.group("name") or ""
            self._check_number(name, number)
            self.open.append(_Node(cls, name, _times(match), number, path=(*here, (cls, name))))
        if not number % _LOOK_EVERY and sum(len(node.leaves) for node in self.open) > text.MAX_LAYERS:
            raise SummaryError(path=self.path, line=number, problem="too many layers", fix=RECREATE)

    def _check_number(self, name: str, number: int, *, holds: bool = True) -> None:
        """Refuse a numbered container that does not follow the one before: those between are left out."""
        if not self.open or not (own := re.match(_RANGE, name)):
            return
        around = self.open[-1]
        if holds and around.last is not None and int(own[1]) > around.last + 1 and around.cls in _NUMBERED:
            missing = f"({around.last + 1}) to ({int(own[1]) - 1}) are left out here"
            raise SummaryError(path=self.path, line=number, problem=missing, fix=_WHOLE)
        around.last = int(own[2] or own[1])

    def _close(self, count: int | None, number: int) -> None:
        """Fold the innermost container into the one around it."""
        if not self.open:
            raise SummaryError(path=self.path, line=number, problem="one ')' too many", fix=RECREATE)
        node = self.open.pop()
        rows = _rows_of(node, count)
        if len(rows) * node.times > text.MAX_LAYERS:
            raise SummaryError(path=self.path, line=number, problem="too many layers", fix=RECREATE)
        if node.times > 1:
            depth = len(node.path) - 1
            rows = [_renumbered(row, depth, repeat) for repeat in range(node.times) for row in rows]
        if self.open:
            self.open[-1].leaves.extend(rows)
        else:
            self.done = rows
        self.count = count


def _times(match: re.Match[str]) -> int:
    """Return how often a module is repeated: "(0-15): 16 x Block(", by some programs without "16 x"."""
    numbers = re.match(_RANGE, match.group("name") or "")
    if match.group("times") or not numbers or not numbers[2]:
        return max(int(match.group("times") or 1), 1)
    return max(int(numbers[2]) - int(numbers[1]) + 1, 1)


def _rows_of(node: _Node, count: int | None) -> list[Layer]:
    """Return the rows of a container: its contents, and its direct parameters by its class or count."""
    cls, name, leaves, around = node.cls, node.name, node.leaves, node.path[:-1]
    kind = kinds.canonical(cls)
    own = None if count is None else count - sum(leaf.params or 0 for leaf in leaves)
    if kind == "multiheadattention":
        return [_attention(leaves, name, around, count, node.line)]
    if cls.startswith(_PARAMETRIZED) and node.arguments:
        plain = cls.removeprefix(_PARAMETRIZED)
        return [_leaf(plain, name, node.arguments, count, around, node.line)]
    if kinds.is_known(kind) and node.arguments:  # a norm with an inner activation (timm)
        shown = own if own and own > 0 else None
        return [_leaf(cls, name, node.arguments, shown, node.path, node.line), *leaves]
    if own and own > 0:
        parameters = Layer(kind="parameter", name=name or cls, path=node.path, params=own, line=node.line)
        return [*leaves, parameters]
    if not leaves and not kinds.is_container(kind):
        return [Layer(kind=kind, name=name or cls, path=around, params=count, line=node.line)]
    return leaves


def _renumbered(leaf: Layer, depth: int, repeat: int) -> Layer:
    """Distinguish the repeats of a "12 x Block" by their local name."""
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
    kind = arguments.kind_by_arguments(kinds.canonical(cls), inside)
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
    """Read a layer's arguments, and the parameter shapes that follow; cached, as many layers are alike."""
    group = kinds.group_of(kind)
    shown = arguments.parse_arguments(inside)
    args = arguments.name_positions(kind, group, shown)
    return args, arguments.parameter_shapes(kind, group, args)


def _attention(
    leaves: list[Layer], name: str, around: tuple[tuple[str, str], ...], count: int | None, line: int
) -> Layer:
    """Add nn.MultiheadAttention's input projections, by its width: only the output projection is printed."""
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
