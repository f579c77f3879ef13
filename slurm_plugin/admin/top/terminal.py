"""The terminal: draws frames and reads keys. A separate thread queries the nodes, so that keys are never delayed."""

from __future__ import annotations

import contextlib
import curses
import os
import threading
from collections.abc import Callable, Sequence

from slurm_plugin.admin.top.fitting import Line, Style
from slurm_plugin.admin.top.fleet import Fleet
from slurm_plugin.admin.top.frame import frame, page_of
from slurm_plugin.admin.top.view import View, after, rows_of

_HEAR_MS = 100
"""Time-out of one wait for a key; new readings are shown after it."""

_ESCAPE_MS = 25
"""How long a terminal may take for the rest of an arrow key's sequence; curses waits a second by default."""

_KEYS = {
    curses.KEY_UP: "Up",
    curses.KEY_DOWN: "Down",
    curses.KEY_PPAGE: "PgUp",
    curses.KEY_NPAGE: "PgDn",
    curses.KEY_HOME: "Home",
    curses.KEY_END: "End",
    curses.KEY_BTAB: "BackTab",
    curses.KEY_BACKSPACE: "Backspace",
    curses.KEY_ENTER: "Enter",
    **{curses.KEY_F0 + number: f"F{number}" for number in range(1, 13)},
}
_CHARACTERS = {
    "\t": "Tab",
    "\n": "Enter",
    "\r": "Enter",
    "\x1b": "Esc",
    "\x7f": "Backspace",
    "\b": "Backspace",
    "\x03": "q",
}

_COLOURS: dict[Style, tuple[int, int]] = {
    "low": (curses.COLOR_GREEN, 0),
    "middle": (curses.COLOR_YELLOW, 0),
    "high": (curses.COLOR_RED, 0),
    "light": (curses.COLOR_BLUE, 0),
    "warn": (curses.COLOR_RED, 0),
    "key": (curses.COLOR_CYAN, curses.A_BOLD),
    "title": (curses.COLOR_CYAN, curses.A_REVERSE),
    "head": (curses.COLOR_GREEN, curses.A_REVERSE),
}
_PLAIN: dict[Style, int] = {
    "dim": curses.A_DIM,
    "chosen": curses.A_REVERSE,
    "title": curses.A_REVERSE,
    "head": curses.A_REVERSE,
    "key": curses.A_BOLD,
    "warn": curses.A_BOLD,
}


def watch(look: Callable[[], Fleet], *, every_s: float, view: View) -> None:
    """Show the fleet until the user quits.

    Args:
        look: Queries all nodes and returns their answers; called in a separate thread.
        every_s: Time between the end of one sample and the next.
        view: What is shown first.
    """
    os.environ.setdefault("ESCDELAY", str(_ESCAPE_MS))
    looker = _Looker(look, every_s)
    looker.start()
    try:
        curses.wrapper(lambda window: _show(window, looker, view))
    except KeyboardInterrupt:
        pass
    finally:
        looker.stop()


class _Looker(threading.Thread):
    """Keeps the last sample; an exception in it is raised where it is shown."""

    def __init__(self, look: Callable[[], Fleet], every_s: float) -> None:
        super().__init__(name="rad-top", daemon=True)
        self._look, self._every_s = look, every_s
        self._stopping = threading.Event()
        self.fleet: Fleet | None = None
        self.broken: BaseException | None = None

    def run(self) -> None:
        """Sample repeatedly."""
        try:
            while not self._stopping.is_set():
                self.fleet = self._look()
                self._stopping.wait(self._every_s)
        except BaseException as exc:  # noqa: BLE001 (raised again, where the terminal is put right first)
            self.broken = exc

    def stop(self) -> None:
        """Stop sampling."""
        self._stopping.set()


def _show(window: curses.window, looker: _Looker, view: View) -> None:
    styles = _styles()
    with contextlib.suppress(curses.error):
        curses.curs_set(0)
    window.timeout(_HEAR_MS)
    window.keypad(True)
    shown, drawn = Fleet(time_s=0.0), None
    while not view.ended:
        if looker.broken is not None:
            raise looker.broken
        if looker.fleet is not None and not view.paused:
            shown = looker.fleet
        height, width = window.getmaxyx()
        if drawn != (wanted := (id(shown), view, height, width)):
            _paint(window, frame(shown, view, width=width, height=height), styles)
            drawn = wanted
        key = _key(window)
        if key:
            view = after(view, key, rows_of(shown, view), page=page_of(view, height))


def _key(window: curses.window) -> str:
    """Return the next key by its name; "" if there was none."""
    try:
        pressed = window.get_wch()
    except curses.error:
        return ""
    if isinstance(pressed, int):
        return _KEYS.get(pressed, "")
    return _CHARACTERS.get(pressed, pressed)


def _styles() -> dict[Style, int]:
    styles = dict(_PLAIN)
    if not curses.has_colors():
        return styles
    with contextlib.suppress(curses.error):
        curses.use_default_colors()
        for number, (style, (colour, extra)) in enumerate(_COLOURS.items(), start=1):
            curses.init_pair(number, colour, -1)
            styles[style] = curses.color_pair(number) | extra
    return styles


def _paint(window: curses.window, lines: Sequence[Line], styles: dict[Style, int]) -> None:
    window.erase()
    for number, line in enumerate(lines):
        # The last cell of the last line moves the cursor out of the window.
        with contextlib.suppress(curses.error):
            window.move(number, 0)
            for text, style in line:
                window.addstr(text, styles.get(style, curses.A_NORMAL))
    window.refresh()
