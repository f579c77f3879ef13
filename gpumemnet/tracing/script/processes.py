"""Which processes the user's command has started, whatever sessions, groups and environments they have.

torchrun starts each rank in a session of its own, and a launcher may start its own with another environment. What
finds them all is the kernel's word of parents: whoever loses his parent becomes a child of this process meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37
_END_S, _LOOK_S = 10.0, 0.005
_LIBC = ctypes.CDLL(None)  # loaded before a fork: between fork and exec nothing may be


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have this process get a signal when its parent has died, however that ended (prctl(2)).

    Works in Popen's preexec_fn, which runs after the change of user: that would undo it.

    Args:
        parent: Its parent's process id. A parent that died before this call sends no signal: it is sent here.
        number: The signal.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


class Started:
    """The processes that were started since, from below this process; made by `adopting`."""

    def __init__(self) -> None:
        self._others = set(_children().get(os.getpid(), ()))

    def alive(self) -> list[int]:
        """Return the ids of those that run."""
        children = _children()
        found: list[int] = []
        rest = [pid for pid in children.get(os.getpid(), ()) if pid not in self._others]
        while rest:
            pid = rest.pop()
            found.append(pid)
            rest += children.get(pid, ())
        return found

    def end(self) -> None:
        """End them all, and what they start meanwhile, and wait for that."""
        ends = time.monotonic() + _END_S
        while (found := self.alive()) and time.monotonic() < ends:
            for pid in found:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
        for pid in _children(ended=True).get(os.getpid(), ()):
            if pid not in self._others:
                with suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)


@contextmanager
def adopting() -> Iterator[Started]:
    """Have what loses its parent become a child of this process, so that all that is started is found; end it after."""
    before = ctypes.c_int()
    _LIBC.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    started = Started()
    try:
        yield started
    finally:
        started.end()
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def _children(*, ended: bool = False) -> dict[int, list[int]]:
    """Return the children of each process: those that run, or those that have ended and wait for their parent."""
    found: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            state, parent = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if (state == b"Z") == ended:
            found.setdefault(int(parent), []).append(int(entry.name))
    return found


def resident_bytes(process: int) -> int:
    """Return how much memory a process holds; 0 once it has ended.

    Args:
        process: Its id.
    """
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * resource.getpagesize()
