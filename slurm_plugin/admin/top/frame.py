"""One frame of the screen as styled text: pure, so that a test can read it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from slurm_plugin.admin.top.cells import Bar, Column, ScreenLine
from slurm_plugin.admin.top.fitting import Line, aligned, bar, cut, drawn, sized
from slurm_plugin.admin.top.fleet import Fleet, totals
from slurm_plugin.admin.top.screens import SCREENS
from slurm_plugin.admin.top.view import HELP, View, rows_of
from slurm_plugin.core.text import one_line
from slurm_plugin.core.units import GIB, counted

ABOVE = 5
"""Lines above the rows: three of sums, the tabs, the headings; a notice comes above them."""
BELOW = 1

_FOOT = (("F1", "Help"), ("F3", "Search"), ("F4", "Filter"), ("F6", "Sort"), ("u", "User"), ("F10", "Quit"))


def page_of(view: View, height: int) -> int:
    """Return how many rows a terminal shows.

    Args:
        view: What is shown.
        height: Height of the terminal, in lines.
    """
    return max(1, height - bool(view.notice) - ABOVE - BELOW)


def frame(fleet: Fleet, view: View, *, width: int, height: int) -> list[Line]:
    """Return the lines of a frame, which fit the terminal's width and height.

    Args:
        fleet: The state to show.
        view: The part of it to show.
        width: Width of the terminal, in characters.
        height: Height of the terminal, in lines.
    """
    rows = rows_of(fleet, view)
    lines: list[Line] = [[(f" {one_line(view.notice, width)}", "warn")]] if view.notice else []
    lines += _sums(fleet, view, width)
    lines.append(_tabs(view))
    if view.helping:
        lines += [[(f"  {keys:<28}", "key"), (what, "plain")] for keys, what in HELP]
        lines = lines[: height - BELOW]
    else:
        columns = sized(SCREENS[view.screen].columns, width)
        lines.append(_heads(columns, view))
        lines += _body(rows, columns, view, width=width, page=page_of(view, height))
    lines += [[] for _ in range(height - BELOW - len(lines))]
    lines.append(_foot(fleet, view, len(rows)))
    return [cut(line, width) for line in lines[:height]]


def as_text(lines: Sequence[Line]) -> str:
    """Return a frame without its styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def _sums(fleet: Fleet, view: View, width: int) -> list[Line]:
    sums = totals(fleet)
    whole = max(sums.usable_bytes, 1)
    time = datetime.fromtimestamp(fleet.time_s).strftime("%H:%M:%S")
    silent = f", {sums.silent} silent" if sums.silent else ""
    parts = (
        f"{counted(sums.nodes, 'node')}{silent}   {sums.busy} of {counted(sums.gpus, 'GPU')} busy   "
        f"{counted(sums.jobs, 'job')} on them: {counted(sums.saved, 'GPU')} saved   {sums.waiting} waiting"
    )
    first: Line = [(f" RAD {time} ", "title"), (f"  {parts}", "warn" if sums.silent else "plain")]
    if view.paused:
        first.append(("  PAUSED (Z)", "key"))
    memory = Bar(
        full=sums.used_bytes / whole,
        light=sums.booked_bytes / whole,
        text=f"{sums.used_bytes / GIB:.0f}/{sums.booked_bytes / GIB:.0f}/{sums.usable_bytes / GIB:.0f}G",
    )
    activity = Bar(full=sums.smact or 0.0, text="-" if sums.smact is None else f"{sums.smact:.2f}")
    size = max(10, min(width - 20, 80))
    return [
        first,
        [(" Memory      ", "dim"), *bar(memory, size)],
        [(" SM activity ", "dim"), *bar(activity, size)],
    ]


def _tabs(view: View) -> Line:
    line: Line = [(" ", "plain")]
    for number, screen in enumerate(SCREENS):
        line += [
            (f" {number + 1} {screen.name} ", "title" if number == view.screen else "dim"),
            (" ", "plain"),
        ]
    if view.user:
        line.append((f" user {view.user} ", "key"))
    if view.filter:
        line.append((f" only {view.filter!r} ", "key"))
    return line


def _heads(columns: Sequence[Column], view: View) -> Line:
    line: Line = []
    for number, column in enumerate(columns):
        mark = (
            ("^" if column.falls == view.turned[view.screen] else "v")
            if number == view.sort[view.screen]
            else ""
        )
        text = f"{column.title}{mark}"[: column.width]
        line.append((aligned(text, column) + " ", "head"))
    return line


def _body(
    rows: Sequence[ScreenLine], columns: Sequence[Column], view: View, *, width: int, page: int
) -> list[Line]:
    if not rows:
        return [[(f"  {SCREENS[view.screen].empty}", "dim")]]
    chosen = max(0, min(view.selected, len(rows) - 1))
    start = max(0, min(chosen - page // 2, len(rows) - page))
    lines = []
    for number, row in enumerate(rows[start : start + page], start):
        line = [
            piece for cell, column in zip(row.cells, columns, strict=True) for piece in drawn(cell, column)
        ]
        if number == chosen:
            text = "".join(text for text, _ in line)
            line = [(text.ljust(width), "chosen")]
        elif row.warns:
            line = [(text, "warn" if style == "plain" else style) for text, style in line]
        lines.append(line)
    return lines


def _foot(fleet: Fleet, view: View, rows: int) -> Line:
    if view.typing:
        text = view.search if view.typing == "search" else view.filter
        return [
            (f" {view.typing.title()}: ", "key"),
            (f"{text}_", "plain"),
            ("   Enter keeps it, Esc drops it", "dim"),
        ]
    line: Line = []
    for key, what in _FOOT:
        line += [(key, "key"), (f"{what}  ", "title")]
    line.append((f"  {counted(rows, 'row')}", "dim"))
    if fleet.queue_trouble:
        line.append((f"  queue: {fleet.queue_trouble}", "warn"))
    return line
