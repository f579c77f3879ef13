"""Slurm's tables in columns of fixed width, which no user can forge.

A name or a comment may hold line ends and any separator, so that a line of its own proves nothing; a width does.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_plugin.core.errors import SlurmError

Columns = Sequence[tuple[str, int]]
"""Names, and widths in bytes."""

_NOTHING = ("", "N/A", "n/a", "(null)", "None", "none", "None assigned", "Unknown")


def known(text: str) -> str:
    """Return a field's text; "" for each of the words that Slurm prints for nothing.

    >>> known("(null)"), known("n0")
    ('', 'n0')
    """
    return "" if text in _NOTHING else text


def cut(text: str, columns: Columns, *, gap: int = 0) -> list[dict[str, str]]:
    """Return the records of a table.

    Args:
        text: What Slurm printed.
        columns: As they were asked for.
        gap: Blanks after each column.

    Raises:
        SlurmError: The text is not what these columns give.
    """
    content = text.encode()
    width = sum(size + gap for _, size in columns)
    rows, at, end = [], 0, len(content.rstrip())
    while at < end:
        if len(content) - at < width:
            raise SlurmError(f"a record of {len(content) - at} bytes where {width} were asked for")
        row = {}
        for name, size in columns:
            row[name] = content[at : at + size].decode(errors="replace").rstrip()
            at += size + gap
        rows.append(row)
        at += content.startswith(b"\n", at)
    return rows
