"""The only parser of Slurm's output: tables in columns of fixed width, split as bytes, which no user can shift.

A job's name, comment or GRES may contain any byte but NUL, so neither a line nor a separator proves anything.
squeue, sinfo and sacct truncate and pad a column to its width in bytes, whatever the locale (22.05.8, 24.11.5 and
26.05.5: `tests/cluster/hostile/test_hostile_bytes.py`). Ids, users, times and nice values come before all text of
users.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.text import one_line

T = TypeVar("T")

log = logging.getLogger("slurm")

Columns = Sequence[tuple[str, int]]
"""Names, and widths in bytes."""
Row = dict[str, str]
"""One record: the text of each column."""

_KEPT = ("Comment", "Name")
"""Columns with text that goes back to Slurm or names a file: bytes that are not UTF-8 are kept as surrogates."""
_NOTHING = ("", "N/A", "n/a", "(null)", "None", "none", "None assigned", "Unknown")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_MOST_LOGGED = 1000
_LOGGED = 200
"""Characters of a value in the log."""
_logged: set[str] = set()
"""Records already logged as unreadable."""


def known(text: str) -> str:
    """Return a field's text; "" for each of Slurm's words for an empty value.

    >>> known("(null)"), known("n0")
    ('', 'n0')
    """
    return "" if text in _NOTHING else text


def number(text: str) -> int:
    """Return a whole number as Slurm prints it.

    Raises:
        ValueError: The text is anything else; `int` accepts underscores, blanks and the digits of other scripts, too.

    >>> number("4294901759"), number("-7")
    (4294901759, -7)
    """
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r:.80} is no number")
    return int(text)


def lines(text: str) -> list[str]:
    r"""Return the lines of Slurm's output: only a line feed ends one, unlike with `str.splitlines`.

    >>> lines("a\u2028b\x0bc\nd\n")
    ['a\u2028b\x0bc', 'd']
    """
    return [line for line in text.split("\n") if line]


def cut(content: bytes, columns: Columns, *, gap: int = 0) -> list[Row]:
    """Return the records of a table.

    Args:
        content: Slurm's output.
        columns: The requested columns.
        gap: Blanks after each column.

    Raises:
        SlurmError: Slurm did not print these columns in these widths.
    """
    if not content.strip(b" \n"):
        return []
    width = sum(size + gap for _, size in columns)
    rows = []
    for at in range(0, len(content), width + 1):
        if content[at + width : at + width + 1] != b"\n":
            raise SlurmError(f"a record of {len(content) - at} bytes where {width} and a line end were due")
        row = {}
        for name, size in columns:
            field = content[at : at + size].rstrip(b" ")
            row[name] = field.decode(errors="surrogateescape" if name in _KEPT else "replace")
            at += size + gap
        rows.append(row)
    return rows


def records(content: bytes, columns: Columns, make: Callable[[Row], T], *, gap: int = 0) -> tuple[T, ...]:
    """Return the converted records of a table; one that cannot be read is left out, and logged once.

    Args:
        content: Slurm's output.
        columns: The requested columns; the first names the record.
        make: Converts one record; raises ValueError for one that cannot be read.
        gap: Blanks after each column.

    Raises:
        SlurmError: Slurm did not print these columns in these widths.
    """
    found = []
    for row in cut(content, columns, gap=gap):
        try:
            found.append(make(row))
        except ValueError as exc:
            _leave_out(columns[0][0], row, exc)
    return tuple(found)


def _leave_out(name: str, row: Row, why: ValueError) -> None:
    what = one_line(f"{name} {row[name]}: {why}", _LOGGED)
    if what in _logged:
        return
    if len(_logged) >= _MOST_LOGGED:
        _logged.clear()
    _logged.add(what)
    log.warning("ignored unreadable output of Slurm: %s", what)
