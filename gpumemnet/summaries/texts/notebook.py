"""Read the printed output of a Jupyter notebook's cells.

nbformat writes one printed line per line of the file, so messages name the line in the user's file.
"""

from __future__ import annotations

import json
import re

_BEGIN = r'^\s*"text(?:/plain)?": \[\s*$'
_LINE = r'^\s*("(?:[^"\\]|\\.)*"),?\s*$'


def is_notebook(text: str) -> bool:
    """Return whether a text is a notebook's JSON."""
    return text.lstrip()[:1] == "{" and '"nbformat"' in text and '"cells"' in text


def outputs_of(text: str) -> str:
    """Return the printed output of a notebook's cells.

    Args:
        text: The notebook's JSON, as nbformat writes it.

    Returns:
        As many lines; those without printed text are empty.
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        printed = re.match(_LINE, line) if inside else None
        lines.append(_decoded(printed[1]) if printed else "")
        inside = printed is not None or re.match(_BEGIN, line) is not None
    return "\n".join(lines) + "\n" if any(lines) else _compact(text)


def _compact(text: str) -> str:
    """Return the printed output of a notebook that is not written line by line; "" if there is none."""
    try:
        cells = json.loads(text)["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", ())]
        printed = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
        return "\n".join("".join(each) for each in printed)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return ""


def _decoded(string: str) -> str:
    """Return the line that a JSON string holds; "" if it is no string."""
    try:
        return "".join(str(json.loads(string)).splitlines()[:1])
    except ValueError:
        return ""
