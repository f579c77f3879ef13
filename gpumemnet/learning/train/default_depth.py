"""Derive torchinfo's text at a depth limit from the text of all levels.

Most users print a summary at the default depth, and most measured runs were printed in full: each gives both texts.
"""

from __future__ import annotations

import re
from typing import NamedTuple

DEPTH = 3
"""torchinfo's default limit."""
_ROW = re.compile(r"[\s│├└─|+]*[A-Za-z_][\w.<>]*(?: \([^()]*\))?: (?P<depth>\d+)-\d+\s")
_SUMMED = ("Param #", "Mult-Adds")
"""Columns in which the last shown row includes the values below it."""
_NOTHING = ("", "--")


class _Column(NamedTuple):
    """Position of a column in each line; the last one has no end."""

    start: int
    end: int | None

    def of(self, line: str) -> str:
        return line[self.start : self.end].strip()

    def replaced(self, line: str, cell: str) -> str:
        if self.end is None:
            return line[: self.start] + cell
        return line[: self.start] + cell.ljust(self.end - self.start) + line[self.end :]


def cut(text: str, depth: int = DEPTH) -> str | None:
    """Return the text without the levels below a limit.

    Args:
        text: torchinfo's text of all levels.
        depth: The deepest shown level.

    Returns:
        torchinfo's text with this limit; None if nothing is below it, or if layers are shared, whose parameters it
            counts differently.
    """
    kept: list[str] = []
    columns: list[_Column] = []
    hidden = False
    for line in text.split("\n"):
        if line.lstrip().startswith("Layer (type"):
            columns = _columns(line)
        row = _ROW.match(line)
        if row is None or int(row["depth"]) <= depth:
            kept.append(line)
            continue
        hidden = True
        for column in columns:
            if "recursive" in column.of(line) + column.of(kept[-1]):
                return None
            if column.of(line) not in _NOTHING:
                kept[-1] = column.replaced(kept[-1], _sum(column.of(kept[-1]), column.of(line)))
    return "\n".join(kept) if hidden else None


def _columns(header: str) -> list[_Column]:
    starts = [match.start() for match in re.finditer(r"\S+(?: \S+)*", header)]
    return [
        _Column(start, end)
        for start, end in zip(starts, [*starts[1:], None], strict=True)
        if header.startswith(_SUMMED, start)
    ]


def _sum(cell: str, more: str) -> str:
    """Add a count to another; frozen counts are in brackets, which remain if all are frozen."""
    number = sum(int(count.strip("()").replace(",", "")) for count in (cell, more) if count not in _NOTHING)
    frozen = all(count.startswith("(") for count in (cell, more) if count not in _NOTHING)
    return f"({number:,})" if frozen else f"{number:,}"
