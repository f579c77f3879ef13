"""Read from a script's source what each line that tests a value leads to."""

from __future__ import annotations

import ast
import linecache
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

_EXITS = ("exit", "quit", "_exit", "abort")
_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_PLAIN = (ast.Constant, ast.Name, ast.Attribute, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.Load)
"""Parts of an expression whose evaluation calls nothing of the script's."""


@dataclass(frozen=True)
class Lines:
    """What the tests of one file lead to, by line.

    Attributes:
        passes: The value with which a check passes: the other one raises, ends, skips or leaves a `for` loop.
        stays: The value with which a `while` loop goes on.
        compared: The comparison in a test, where there is one; None for a test of another form.
        several: Lines with several comparisons, of which the one that asks is not known.
    """

    passes: dict[int, bool] = field(default_factory=dict)
    stays: dict[int, bool] = field(default_factory=dict)
    compared: dict[int, ast.Compare | None] = field(default_factory=dict)
    several: set[int] = field(default_factory=set)


@cache
def of_file(file: str) -> Lines:
    """Return what the tests in a file lead to; nothing for a file that cannot be read.

    Args:
        file: As in a frame's code.
    """
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return Lines()
    found = Lines()
    for node, loop in _walk(tree, None):
        if isinstance(node, ast.Assert):
            _note(node.test, True, found.passes)
        elif isinstance(node, ast.While):
            _note(node.test, True, found.stays)
        elif isinstance(node, ast.If):
            left, right = _leaves(node.body, loop), _leaves(node.orelse, loop)
            if left != right:
                _note(node.test, not left, found.stays if (left or right) == _LOOP else found.passes)
        elif isinstance(node, ast.IfExp) and _constant(node.body) != _constant(node.orelse):
            _note(node.test, _constant(node.orelse), found.passes)
        if isinstance(node, (ast.Assert, ast.While, ast.If, ast.IfExp)):
            _compare(node.test, found)
    return found


def number(compare: ast.Compare, wanted: bool, frame: Any) -> float | None:
    """Return a number for the value that a comparison asks for, so that it is as wanted; None if that is unknown.

    Args:
        compare: The comparison, of two parts.
        wanted: Its value.
        frame: Where it runs.
    """
    parts = (compare.left, compare.comparators[0])
    compared = _OPERATORS.get(type(compare.ops[0]))
    known = [_value(part, frame) for part in parts]
    if compared is None or len(compare.ops) > 1 or (known[0] is None) == (known[1] is None):
        return None
    other = known[0] if known[1] is None else known[1]
    for guess in (other + 1, other - 1, other):
        pair = (guess, other) if known[0] is None else (other, guess)
        if bool(compared(*pair)) == wanted:
            return guess
    return None


def _value(part: ast.expr, frame: Any) -> Any:
    """Return an expression's number; None if it may call something, or is no number."""
    if not _is_plain(part):
        return None
    try:
        code = compile(ast.Expression(part), "<test>", "eval")
        value = eval(code, frame.f_globals, frame.f_locals)
    except Exception:  # noqa: BLE001 - the script's own names
        return None
    return value if isinstance(value, (int, float)) else None


def _constant(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant)


def _is_plain(part: ast.expr) -> bool:
    return all(isinstance(each, (*_PLAIN, ast.Compare, ast.cmpop)) for each in ast.walk(part))


def _walk(node: ast.AST, loop: ast.AST | None) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Yield every node with the loop around it."""
    for child in ast.iter_child_nodes(node):
        yield child, loop
        inner = child if isinstance(child, (ast.For, ast.AsyncFor, ast.While)) else loop
        yield from _walk(child, None if isinstance(child, (ast.FunctionDef, ast.Lambda)) else inner)


def _compare(test: ast.expr, found: Lines) -> None:
    """Record each line of a test with the comparison in it that calls something."""
    for line in _span(test):
        found.compared[line] = None
    compares = [each for each in ast.walk(test) if isinstance(each, ast.Compare) and not _is_plain(each)]
    for each in compares:
        for line in _span(each):
            if sum(line in _span(other) for other in compares) == 1:
                found.compared[line] = each
            else:
                found.several.add(line)


def _span(part: ast.expr) -> range:
    return range(part.lineno, (part.end_lineno or part.lineno) + 1)


def _note(test: ast.expr, wanted: bool, found: dict[int, bool]) -> None:
    """Record the wanted value of each operand of a test, but none for a line whose operands differ in it."""
    values: dict[int, set[bool]] = {}

    def walk(part: ast.expr, value: bool) -> None:
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
            walk(part.operand, not value)
        elif isinstance(part, ast.BoolOp):
            for operand in part.values:
                walk(operand, value)
        elif not _of_words(part):
            for line in _span(part):
                values.setdefault(line, set()).add(value)

    walk(test, wanted)
    found.update({line: each.pop() for line, each in values.items() if len(each) == 1})


def _of_words(part: ast.expr) -> bool:
    """Return whether an operand compares no tensor: it has a text, or asks `is` or `in`."""
    if not isinstance(part, ast.Compare):
        return False
    texts = (isinstance(each, ast.Constant) and isinstance(each.value, str) for each in ast.walk(part))
    return any(texts) or isinstance(part.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn))


_NOT, _SKIPS, _LOOP = "", "skips", "leaves the loop"


def _leaves(body: list[ast.stmt], loop: ast.AST | None) -> str:
    """Return whether statements lead straight to an exception, the script's end, a loop's next round or its end."""
    if not body or not all(isinstance(each, (ast.Expr, ast.Assign)) for each in body[:-1]):
        return _NOT
    last = body[-1]
    if isinstance(last, ast.Break):
        return _LOOP if isinstance(loop, ast.While) else _SKIPS
    if isinstance(last, ast.Return):
        simple = last.value is None or isinstance(last.value, (ast.Constant, ast.Name))
        return (_LOOP if isinstance(loop, ast.While) else _SKIPS) if simple else _NOT
    if isinstance(last, (ast.Raise, ast.Continue)):
        return _SKIPS
    if not isinstance(last, ast.Expr) or not isinstance(last.value, ast.Call):
        return _NOT
    called = last.value.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return _SKIPS if name in _EXITS else _NOT
