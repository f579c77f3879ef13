"""Which processes the user's command has started, whatever sessions and groups they made for themselves.

torchrun starts each rank in a session of its own, so that neither session nor process group finds them. What finds
them is a variable of the environment, which children inherit.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before a fork: between fork and exec nothing may be


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Have this process get a signal when its parent has died, however that ended (prctl(2)).

    Works in Popen's preexec_fn, which runs after the change of user: that would undo it.

    Args:
        number: The signal.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)


def holding(variable: str, value: str) -> Iterator[int]:
    """Yield the ids of the processes that were started with a variable; those of other users cannot be read.

    Args:
        variable: Its name.
        value: Its value.
    """
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and holds(int(entry.name), variable, value):
            yield int(entry.name)


def holds(process: int, variable: str, value: str) -> bool:
    """Tell whether a process was started with a variable.

    Args:
        process: Its id.
        variable: As for `holding`.
        value: Likewise.
    """
    try:
        environment = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return False
    return os.fsencode(f"{variable}={value}") in environment.split(b"\0")


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


def end(variable: str, value: str) -> None:
    """End them all, and what they start meanwhile.

    Args:
        variable: As for `holding`.
        value: Likewise.
    """
    ended: set[int] = set()
    while found := set(holding(variable, value)) - ended:
        for process in found:
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                continue
        ended |= found
