"""Fit texts to their width on the screen: cells, bars, cut lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from slurm_plugin.admin.top.cells import Bar, Cell, Column

Style = Literal["plain", "dim", "title", "head", "key", "low", "middle", "high", "light", "warn", "chosen"]

Piece = tuple[str, Style]

Line = list[Piece]


def drawn(cell: Cell, column: Column) -> Line:
    """Return a cell as wide as its column, and a space; a text that is cut ends with +, as Slurm's do.

    Args:
        cell: A text or a bar.
        column: Its column.
    """
    if isinstance(cell, Bar):
        return [*bar(cell, column.width), (" ", "plain")]
    shown = cell if len(cell) <= column.width else f"{cell[: max(column.width - 1, 0)]}+"[: column.width]
    return [(aligned(shown, column) + " ", "plain")]


def aligned(text: str, column: Column) -> str:
    """Return a text as wide as its column, aligned as the column requires.

    Args:
        text: No wider than the column.
        column: Its column.
    """
    return text.rjust(column.width) if column.right else text.ljust(column.width)


def bar(filled: Bar, width: int) -> Line:
    """Return a bar with its text over its right end, as htop draws it.

    Args:
        filled: How full it is.
        width: In characters.
    """
    size = max(width - 2, 1)
    full = round(size * min(1.0, max(0.0, filled.full)))
    light = max(full, round(size * min(1.0, max(0.0, filled.light))))
    text = filled.text[:size]
    body = ("|" * full + ":" * (light - full)).ljust(size)
    body = body[: size - len(text)] + text
    level: Style = "low" if filled.full < 0.5 else "middle" if filled.full < 0.9 else "high"
    return [
        ("[", "plain"),
        (body[:full], level),
        (body[full:light], "light"),
        (body[light:], "dim"),
        ("]", "plain"),
    ]


def sized(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns with the remaining width given to the column that takes it.

    Args:
        columns: Columns of one screen; a width below 0 is the negative minimum of such a column.
        width: Width of the screen, in characters.
    """
    fixed = sum(max(column.width, 0) + 1 for column in columns)
    return [
        column
        if column.width > 0
        else Column(
            title=column.title,
            width=max(-column.width, width - fixed, 0),
            right=column.right,
            falls=column.falls,
        )
        for column in columns
    ]


def cut(line: Line, width: int) -> Line:
    """Return the part of a line that fits on the screen; it ends with + if a text is cut.

    Args:
        line: Any line.
        width: Width of the screen, in characters.
    """
    found: Line = []
    left = max(width, 0)
    for text, style in line:
        if text[:left]:
            found.append((text[:left], style))
        left = max(left - len(text), 0)
    if found and "".join(text for text, _ in line)[max(width, 0) :].strip():
        text, style = found[-1]
        found[-1] = (f"{text[:-1]}+", style)
    return found
