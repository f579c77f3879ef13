"""Choose the side of a branch on a tensor's values that neither raises nor skips the rest of a loop.

A script checks its values with `assert`, or with `if ...: raise`, `sys.exit()` or `continue`: in a run without faults
these are passed. The source of the line that asks for the value says which answer does.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from functools import cache
from typing import Any

import torch

_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_CHECKING = ("distributions", "nn", "optim")
"""Folders of PyTorch that check values themselves; its other files lie between such a line and the operator."""
_TRACING = os.path.join("gpumemnet", "tracing", "")
_EXITS = ("exit", "quit", "_exit", "abort")


def passing() -> tuple[bool, str] | None:
    """Return the value that passes the check of the line that asks for one, and its place; None for other lines."""
    frame: Any = sys._getframe(1)
    while frame is not None and _between(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    file, line = frame.f_code.co_filename, frame.f_lineno
    value = _checks(file).get(line)
    return None if value is None else (value, f"{_short(file)}:{line}")


def _between(file: str) -> bool:
    inside = file[len(_TORCH) :].split(os.sep)[0] if file.startswith(_TORCH) else _CHECKING[0]
    return _TRACING in file or inside not in _CHECKING


def _short(file: str) -> str:
    inside = os.path.join(os.getcwd(), "")
    return file[len(inside) :] if file.startswith(inside) else os.path.basename(file)


@cache
def _checks(file: str) -> dict[int, bool]:
    """Return the value that passes the check in each line of a file that has one."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    found: dict[int, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            _note(node.test, True, found)
        elif isinstance(node, ast.If) and _fails(node.body) != _fails(node.orelse):
            _note(node.test, _fails(node.orelse), found)
    return found


def _note(test: ast.expr, wanted: bool, found: dict[int, bool]) -> None:
    """Record the wanted value of each operand of a test, but none for a line whose operands differ in it."""
    values: dict[int, set[bool]] = {}

    def walk(part: ast.expr, value: bool) -> None:
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
            walk(part.operand, not value)
        elif isinstance(part, ast.BoolOp):
            for operand in part.values:
                walk(operand, value)
        else:
            for line in range(part.lineno, (part.end_lineno or part.lineno) + 1):
                values.setdefault(line, set()).add(value)

    walk(test, wanted)
    found.update({line: each.pop() for line, each in values.items() if len(each) == 1})


def _fails(body: list[ast.stmt]) -> bool:
    """Return whether statements lead straight to an exception, to the script's end or to a loop's next round."""
    if not body or not all(isinstance(each, (ast.Expr, ast.Assign)) for each in body[:-1]):
        return False
    last = body[-1]
    if isinstance(last, (ast.Raise, ast.Continue)):
        return True
    if not isinstance(last, ast.Expr) or not isinstance(last.value, ast.Call):
        return False
    called = last.value.func
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in _EXITS
