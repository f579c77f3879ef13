"""Elements of a screen: columns, rows, and cells with text or bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_plugin.admin.top.fleet import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar as in htop.

    Attributes:
        full: Its solid share, 0 to 1.
        light: Its light share, the booking, drawn where it is longer than the solid one.
        text: Text at its right end.
    """

    full: float
    light: float = 0.0
    text: str = ""


Cell = str | Bar


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenLine:
    """One line of a screen.

    Attributes:
        cells: One for each column.
        keys: Sort keys, one for each column; those of one column have one type.
        users: Names of its users.
        warns: Whether it shows a problem.
    """

    cells: tuple[Cell, ...]
    keys: tuple[float | str, ...]
    users: tuple[str, ...] = ()
    warns: bool = False

    @property
    def text(self) -> str:
        """Return its text, for filter and search."""
        return " ".join(cell if isinstance(cell, str) else cell.text for cell in self.cells).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column; one with a width of 0 or less takes the remaining width, and at least the width's absolute value.

    Attributes:
        title: Its heading.
        width: Its width in characters.
        right: Whether it holds numbers.
        falls: Whether the largest comes first when sorted by it.
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
        columns: Its columns.
        rows: Function that returns its rows.
        empty: Message if there are no rows.
    """

    name: str
    columns: tuple[Column, ...]
    rows: Callable[[Fleet], Sequence[ScreenLine]]
    empty: str


def duration(seconds: float) -> str:
    """Return a time span in a form for a narrow column.

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
