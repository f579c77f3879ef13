"""Plain-text tables: columns as wide as their widest cell, numbers aligned right."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def as_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> str:
    """Return a table as plain text.

    Args:
        headings: One for each column.
        rows: Rows with one cell per heading.
        left: Columns that are aligned left; all others are numbers.

    >>> print(as_table(("name", "MiB"), [("a", "1"), ("long", "1024")]))
    name   MiB
    a        1
    long  1024
    """
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
