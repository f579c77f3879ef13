"""A Jupyter notebook as a text: what its cells printed.

nbformat writes one printed line on one line of the file, so messages name the line that the user sees there.
"""

from __future__ import annotations

import json
import re

_BEGIN = re.compile(r'^\s*"text(?:/plain)?": \[\s*$')
_LINE = re.compile(r'^\s*("(?:[^"\\]|\\.)*"),?\s*$')


def is_notebook(text: str) -> bool:
    """Return whether a text is a notebook's JSON."""
    return text.lstrip()[:1] == "{" and '"nbformat"' in text and '"cells"' in text


def outputs_of(text: str) -> str:
    """Return what the cells of a notebook printed.

    Args:
        text: The notebook's JSON, as nbformat writes it.

    Returns:
        As many lines; those that are no printed text are empty.
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        printed = _LINE.match(line) if inside else None
        lines.append(_decoded(printed[1]) if printed else "")
        inside = printed is not None or _BEGIN.match(line) is not None
    return "\n".join(lines) + "\n"


def _decoded(string: str) -> str:
    """Return the one line that a JSON string holds; "" for a string that is none."""
    try:
        return "".join(str(json.loads(string)).splitlines()[:1])
    except ValueError:
        return ""
