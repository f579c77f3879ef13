"""The user's view, and how each key changes it; the keys are htop's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from slurm_plugin.admin.top.cells import ScreenLine
from slurm_plugin.admin.top.fleet import Fleet
from slurm_plugin.admin.top.screens import SCREENS

Typing = Literal["", "search", "filter"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """State of the view.

    Attributes:
        screen: Number of the screen in screens.SCREENS.
        sort: The column that each screen is sorted by.
        turned: Whether each screen is sorted in reverse.
        selected: Number of the chosen row.
        filter: Only rows with this text.
        user: Only rows about this user; "" for all.
        search: The searched text.
        typing: Target of the keys: a search, a filter, or "" for commands.
        helping: Whether the help on keys is shown.
        paused: Whether new readings are held back.
        ended: Whether the user has quit.
        notice: What is wrong with the settings that everything is shown by, or "".
    """

    screen: int = 0
    sort: tuple[int, ...] = (0,) * len(SCREENS)
    turned: tuple[bool, ...] = (False,) * len(SCREENS)
    selected: int = 0
    filter: str = ""
    user: str = ""
    search: str = ""
    typing: Typing = ""
    helping: bool = False
    paused: bool = False
    ended: bool = False
    notice: str = ""


_Action = Callable[[View, Sequence[ScreenLine]], View]

HELP = (
    ("Up Down PgUp PgDn Home End", "choose a row"),
    ("Tab, Shift-Tab, 1 to 5", "next, previous, any screen"),
    ("F3 or /", "search; F3 again for the next match"),
    ("F4 or \\", "show only rows with this text; Esc shows all"),
    ("u", "show only rows of the chosen row's first user; again for all"),
    ("F6, > and <", "sort by the next or previous column"),
    ("M, P, N", "sort by memory, SM activity, first column"),
    ("I", "reverse the order"),
    ("Z", "pause or resume the display"),
    ("F1, h or ?", "this page"),
    ("F10 or q", "end"),
)
"""Keys and their effects."""

_LONGEST_TEXT = 60


def rows_of(fleet: Fleet, view: View) -> list[ScreenLine]:
    """Return the rows that a view shows, in order.

    Args:
        fleet: The answers of all nodes.
        view: Screen, order, filter and user to show.
    """
    screen = SCREENS[view.screen]
    column = view.sort[view.screen]
    wanted = view.filter.lower()
    found = [
        row
        for row in screen.rows(fleet)
        if (not view.user or view.user in row.users) and (not wanted or wanted in row.text)
    ]
    falls = screen.columns[column].falls != view.turned[view.screen]
    return sorted(found, key=lambda row: row.keys[column], reverse=falls)


def after(view: View, key: str, rows: Sequence[ScreenLine], *, page: int) -> View:
    """Return the view after a key.

    Args:
        view: The view before.
        key: A character, or a name: "Up", "PgDn", "F3", "Enter", "Esc", "Backspace", "Tab", "BackTab", ...
        rows: The rows that were shown.
        page: Rows on one page.
    """
    view = replace(view, selected=max(0, min(view.selected, len(rows) - 1)))
    if view.typing:
        return _typed(view, key, rows)
    if view.helping:
        return replace(view, helping=False, ended=key in ("q", "F10"))
    steps = {"Up": -1, "Down": 1, "PgUp": -page, "PgDn": page, "Home": -len(rows), "End": len(rows)}
    if key in steps:
        return replace(view, selected=max(0, min(view.selected + steps[key], len(rows) - 1)))
    action = _ACTIONS.get(key)
    return view if action is None else action(view, rows)


def _typed(view: View, key: str, rows: Sequence[ScreenLine]) -> View:
    if key in ("Enter", "F3", "F4", "Down", "Up"):
        return replace(view, typing="")
    if key == "Esc":
        gone = replace(view, typing="")
        return replace(gone, search="") if view.typing == "search" else replace(gone, filter="")
    text = view.search if view.typing == "search" else view.filter
    if key == "Backspace":
        text = text[:-1]
    elif len(key) == 1 and key.isprintable():
        text = (text + key)[:_LONGEST_TEXT]
    if view.typing == "filter":
        return replace(view, filter=text, selected=0)
    return _found(replace(view, search=text), rows, view.selected)


def _found(view: View, rows: Sequence[ScreenLine], start: int) -> View:
    """Select the next row that contains the searched text, from `start` on, wrapping around."""
    wanted = view.search.lower()
    for step in range(len(rows)):
        number = (start + step) % len(rows)
        if wanted in rows[number].text:
            return replace(view, selected=number)
    return view


def _to_screen(view: View, number: int) -> View:
    return replace(view, screen=number % len(SCREENS), selected=0)


def _sorted_by(view: View, column: int) -> View:
    columns = len(SCREENS[view.screen].columns)
    return replace(
        view,
        sort=_with(view.sort, view.screen, column % columns),
        turned=_with(view.turned, view.screen, False),
    )


def _by_title(view: View, starts: tuple[str, ...]) -> View:
    for number, column in enumerate(SCREENS[view.screen].columns):
        if column.title.startswith(starts):
            return _sorted_by(view, number)
    return view


def _with(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _next_match(view: View, rows: Sequence[ScreenLine]) -> View:
    return _found(view, rows, view.selected + 1) if view.search else replace(view, typing="search")


def _screen_key(number: int) -> _Action:
    return lambda view, _: _to_screen(view, number)


def _first_user(view: View, rows: Sequence[ScreenLine]) -> View:
    users = rows[view.selected].users if rows else ()
    return replace(view, user="" if view.user else next(iter(users), ""), selected=0)


_BY_KEYS: Mapping[tuple[str, ...], _Action] = {
    ("q", "F10"): lambda view, _: replace(view, ended=True),
    ("h", "?", "F1"): lambda view, _: replace(view, helping=True),
    ("Tab",): lambda view, _: _to_screen(view, view.screen + 1),
    ("BackTab",): lambda view, _: _to_screen(view, view.screen - 1),
    ("/",): lambda view, _: replace(view, typing="search", search=""),
    ("F3", "n"): _next_match,
    ("\\", "F4"): lambda view, _: replace(view, typing="filter"),
    ("Esc",): lambda view, _: replace(view, filter="", user="", search=""),
    ("u",): _first_user,
    (">", ".", "F6"): lambda view, _: _sorted_by(view, view.sort[view.screen] + 1),
    ("<", ","): lambda view, _: _sorted_by(view, view.sort[view.screen] - 1),
    ("M",): lambda view, _: _by_title(view, ("MEMORY", "NOW")),
    ("P",): lambda view, _: _by_title(view, ("SM",)),
    ("N",): lambda view, _: _sorted_by(view, 0),
    ("I",): lambda view, _: replace(
        view, turned=_with(view.turned, view.screen, not view.turned[view.screen])
    ),
    ("Z", "z"): lambda view, _: replace(view, paused=not view.paused),
    **{(str(number + 1),): _screen_key(number) for number in range(5)},
}
_ACTIONS = {key: action for keys, action in _BY_KEYS.items() for key in keys}
