"""Check for one model per file: a file with two different summaries is refused.

Every process of a distributed training prints the same summary; repeats are removed.
"""

from __future__ import annotations

import re

from gpumemnet.errors import SummaryError
from gpumemnet.summaries.texts.formats.clean import CHILD, following
from gpumemnet.summaries.texts.formats.text import parse_total

_ROOT = re.compile(r"^[A-Za-z_][\w.]{0,200}\($")


def only_one(source: str, *, path: str) -> str:
    """Return a text up to the first repeat of its summary.

    Args:
        source: The cleaned text.
        path: File, for messages.

    Raises:
        SummaryError: A second summary differs from the first.
    """
    lines = source.split("\n")
    starts = _tables(lines) or _trees(lines)
    if len(starts) < 2:
        return source
    for start, after in zip(starts[1:], [*starts[2:], len(lines)], strict=True):
        if _body(lines[starts[0] : starts[1]]) != _body(lines[start:after]):
            raise SummaryError(
                path=path,
                line=start + 1,
                problem=f"a second summary begins here; the first is in line {starts[0] + 1}",
                fix="keep the one that is trained",
            )
    return "\n".join(lines[: starts[1]])


def _tables(lines: list[str]) -> list[int]:
    """Return the header lines of all tables; a new table begins only after the total of the one before."""
    heads = [at for at, line in enumerate(lines) if "Layer (type" in line[:40]]
    if len(heads) < 2:
        return heads
    starts: list[int] = []
    ended = True
    for at, line in enumerate(lines):
        if "Layer (type" in line[:40]:
            if ended:
                starts.append(at)
            ended = False
        elif (total := parse_total(line)) and total[0] == "total":
            ended = True
    return starts


def _trees(lines: list[str]) -> list[int]:
    """Return the root lines of all texts of `print(model)`."""
    return [
        at
        for at, (line, below) in enumerate(zip(lines, following(lines), strict=True))
        if _ROOT.match(line) and CHILD.match(below)
    ]


def _body(lines: list[str]) -> list[str]:
    """Return the rows up to the total of a table, or to the end of a tree."""
    rows: list[str] = []
    for line in lines:
        if (total := parse_total(line)) and total[0] == "total":
            return [*rows, line.strip()]
        if line.strip():
            rows.append(line.strip())
        if line.startswith(")"):
            break
    return rows
