"""What a screen is made of: columns, rows, and cells that are words or bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_plugin.admin.top.fleet import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar such as htop's.

    Attributes:
        full: Its solid share, 0 to 1.
        light: Its light share, drawn where that is longer than the solid one: what is booked.
        text: What stands in its right end.
    """

    full: float
    light: float = 0.0
    text: str = ""


Cell = str | Bar


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a screen.

    Attributes:
        cells: One for each column.
        keys: By what to sort, one for each column; those of one column are of one type.
        users: Names of whom it is about.
        warns: Whether something is wrong with it.
    """

    cells: tuple[Cell, ...]
    keys: tuple[float | str, ...]
    users: tuple[str, ...] = ()
    warns: bool = False

    @property
    def text(self) -> str:
        """Return its words, for filter and search."""
        return " ".join(cell if isinstance(cell, str) else cell.text for cell in self.cells).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column; of a width of 0 or less it takes what is left, and at least as much as that says.

    Attributes:
        title: Its head.
        width: Its width in characters.
        right: Whether it holds numbers.
        falls: Whether the largest comes first when it is chosen to sort by.
    """

    title: str
    width: int
    right: bool = False
    falls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """One kind of rows.

    Attributes:
        name: Its name on the tabs.
        columns: What stands in its rows.
        rows: Makes them.
        empty: What to say where there are none.
    """

    name: str
    columns: tuple[Column, ...]
    rows: Callable[[Fleet], Sequence[Row]]
    empty: str


def duration(seconds: float) -> str:
    """Return a time span for a narrow column.

    >>> duration(59), duration(3 * 3600 + 60), duration(2 * 86400)
    ('59s', '3h01m', '2d00h')
    """
    n = int(seconds)
    if n < 60:
        return f"{n}s"
    if n < 3600:
        return f"{n // 60}m{n % 60:02}s"
    if n < 86400:
        return f"{n // 3600}h{n % 3600 // 60:02}m"
    return f"{n // 86400}d{n % 86400 // 3600:02}h"
