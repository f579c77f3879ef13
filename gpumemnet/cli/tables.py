"""Format rows of advice as a table for people, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

_WORDS = {
    "batch_size": "batch",
    "has_mib": "has MiB",
    "needs_mib": "needs MiB",
    "booked_mib": "booked MiB",
    "fit": "jobs per GPU",
    "asks": "requests",
}
_NOTHING = "-"


def as_json(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as one JSON object.

    Args:
        name: Key of the rows.
        rows: The rows.
    """
    return json.dumps({"version": 1, name: list(rows)})


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a table; values that do not fit are red if the terminal shows colours.

    Args:
        rows: At least one; all have the same keys.
    """
    heads = [_WORDS.get(key, key) for key in rows[0]]
    cells = [[_NOTHING if value is None else str(value) for value in row.values()] for row in rows]
    widths = [max(len(line[at]) for line in [heads, *cells]) for at in range(len(heads))]
    words = [isinstance(value, str) for value in rows[0].values()]
    lines = [
        "  ".join(
            cell.ljust(n) if word else cell.rjust(n)
            for cell, n, word in zip(line, widths, words, strict=True)
        )
        for line in [heads, *cells]
    ]
    too_large = [False, *(row.get("fit") == 0 for row in rows)]
    return "\n".join(
        click.style(line.rstrip(), fg="red") if red else line.rstrip()
        for line, red in zip(lines, too_large, strict=True)
    )
