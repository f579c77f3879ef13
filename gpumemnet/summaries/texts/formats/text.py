"""Parse elements that all summary formats share: shapes, counts, totals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from gpumemnet.errors import SummaryError
from gpumemnet.summaries.texts.records import RECREATE, Shape
from gpumemnet.units import MEGA

MAX_LAYERS = 20_000
"""More rows than any model has; a longer text is refused at once."""

MAX_LINE = 1000
"""Maximum length of a line, which limits the time of patterns."""
MAX_RANK = 12
MAX_ELEMENTS = 1 << 48
"""Sanity limits (1 Ti elements a dimension, 256 Ti a tensor): larger numbers come from broken text."""

_LIST = re.compile(r"\[([^\[\]]*)\]")
_TOTAL = re.compile(r"^\s*(Total|Trainable|Non-trainable)\s+params[^:]*:\s*([\d,]+)\b", re.IGNORECASE)

_LOG = (
    r"^\s*(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|\[?(?:DEBUG|INFO|WARN(?:ING)?|ERROR|rank ?\d+)\b|\S{1,200}\.py:\d+:"
    r"|\w*Warning:|Epoch\b|[Ss]tep\b|\s*\d{1,3}%\|)"
)
"""A line of a logger, a warning or a progress bar between two rows; compiled only for texts that have one."""
_SIZE = re.compile(
    r"^\s*(Input size|Forward/backward pass size)(?: \(([kMG]?)B\))?:\s*(\d{1,9}(?:\.\d{1,4})?)\s*$"
)
_SCALES = {"": 1, "k": 1000, "M": MEGA, "G": 1000 * MEGA}
_HALF_A_DIGIT = 0.005
"""MB by which a size may exceed its two-digit form."""


def lines(source: str) -> Iterator[tuple[int, str]]:
    """Number the lines of a text from 1, and cut each to a length above that of any valid row."""
    return enumerate([line[:MAX_LINE] for line in source.splitlines()], start=1)


def parse_shapes(text: str, *, path: str, line: int) -> tuple[Shape, ...]:
    """Read every innermost bracketed list of numbers as one shape.

    Args:
        text: "[-1, 64, 8, 8]" or nested, "[[-1, 16, 64], [-1, 16]]".
        path: File, for the error.
        line: Line, for the error.

    Returns:
        One shape per list; -1 and None become None.

    Raises:
        SummaryError: A dimension is not a number or absurdly large.
    """
    try:
        return _shapes(text)
    except _NoShape as exc:
        raise SummaryError(path=path, line=line, problem=str(exc), fix=RECREATE) from exc


class _NoShape(ValueError):
    """A list of numbers that cannot be a shape, with the reason."""


@lru_cache(maxsize=4096)
def _shapes(text: str) -> tuple[Shape, ...]:
    """Read the lists of a cell; cached, as many layers share few shapes."""
    return tuple(_shape(body) for body in _LIST.findall(text) if body.strip())


def _shape(body: str) -> Shape:
    dims: list[int | None] = []
    elements = 1
    for word in body.split(","):
        word = word.strip()
        if word in ("-1", "None", "?"):
            dims.append(None)
            continue
        if not (word.isascii() and word.isdigit()) or len(word) > 15:
            raise _NoShape(f"'{word[:20]}' is not a dimension")
        dim = int(word)
        elements *= max(dim, 1)
        dims.append(dim)
    if len(dims) > MAX_RANK or elements > MAX_ELEMENTS:
        raise _NoShape(f"no tensor has the shape [{body[:40]}]")
    return tuple(dims)


@lru_cache(maxsize=4096)
def parse_count(text: str) -> int | None:
    """Return "1,234", "(1,234)" as a number, "--" and "(recursive)" as None."""
    digits = text.strip("() \u251c\u2514\u2500").replace(",", "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else None


def parse_total(line: str) -> tuple[str, int] | None:
    """Return ("total" | "trainable" | "non-trainable", count) if the line states one."""
    match = _TOTAL.match(line) if ":" in line else None
    if not match:
        return None
    count = parse_count(match.group(2))
    return None if count is None else (match.group(1).lower(), count)


def is_foreign(line: str, marks: str) -> bool:
    """Return whether a line inside a table is other program output: it looks like it and has no mark of a row.

    Args:
        line: The line.
        marks: Characters, at least one of which is in every row.
    """
    return not any(mark in line for mark in marks) and re.match(_LOG, line) is not None


def left_out(numbers: list[int]) -> tuple[str, ...]:
    """Return the warning about lines inside a table that do not belong to it."""
    if not numbers:
        return ()
    shown = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
    return (f"left out what is no part of the summary: line{'s' * (len(numbers) > 1)} {shown}",)


def parse_sizes(line: str, *, unit: int) -> dict[str, int]:
    """Return the sizes in a line below a table: {"input": upper bound in bytes} or {"pass": bytes of all outputs}.

    Args:
        line: The line.
        unit: Bytes per MB of the format: decimal in torchinfo, binary in torchsummary.
    """
    match = _SIZE.match(line)
    if not match:
        return {}
    scale = _SCALES.get(match.group(2) or "", 0)
    unit = unit if scale == MEGA else scale  # torchinfo's coming release chooses the unit
    stated = float(match.group(3))
    if match.group(1).startswith("Input"):
        return {"input": int((stated + _HALF_A_DIGIT) * unit)}
    return {"pass": int(stated * unit / 2)}  # counted twice, for the gradients
