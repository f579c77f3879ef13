"""Find the processes that the user's command started, regardless of session, group and environment.

torchrun starts each rank in a new session, and a launcher may change the environment. The kernel's record of parents
finds them all: meanwhile, a process that loses its parent becomes a child of this process.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar, cast

from gpumemnet.errors import TraceError

Answer = TypeVar("Answer")

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37
_END_S, _LOOK_S = 10.0, 0.005
_LIBC = ctypes.CDLL(None)  # loaded before a fork: nothing may be loaded between fork and exec


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Send this process a signal when its parent dies, for any reason (prctl(2)).

    Use it in Popen's preexec_fn, which runs after the change of user: that change would undo it.

    Args:
        parent: Its parent's process id. If the parent died before this call, the signal is sent here.
        number: The signal.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


class Started:
    """Descendants of this process since `adopting` began; made by `adopting`."""

    def __init__(self) -> None:
        self._others = set(_children().get(os.getpid(), ()))

    def alive(self) -> list[int]:
        """Return the ids of those that still run."""
        children = _children()
        found: list[int] = []
        rest = [pid for pid in children.get(os.getpid(), ()) if pid not in self._others]
        while rest:
            pid = rest.pop()
            found.append(pid)
            rest += children.get(pid, ())
        return found

    def end(self) -> None:
        """End them all, including new ones, and wait until they have ended."""
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
    """Adopt orphaned descendants, so that all started processes are found; end them afterwards."""
    before = ctypes.c_int()
    _LIBC.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    started = Started()
    try:
        yield started
    finally:
        started.end()
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def kept(work: Callable[[], Answer], *, orphaned: Callable[[], None]) -> Answer:
    """Do work in a process that ends all that it started, although this process is killed, and return its result.

    It has its own session, so no signal to this process's group reaches it. SIGTERM ends its work.

    Args:
        work: What it does; result and errors are pickled.
        orphaned: What it does at its end if this process has died.

    Raises:
        TraceError: The process was killed.
    """
    parent = os.getpid()
    answer, settings = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _keep(work, orphaned, settings, parent)
        finally:
            os._exit(0)
    os.close(settings)
    try:
        with os.fdopen(answer, "rb") as file:
            text = file.read()
    except BaseException:
        with suppress(OSError):
            os.kill(child, signal.SIGTERM)
        raise
    finally:
        os.waitpid(child, 0)
    if not text:
        raise TraceError("the process that watches the script was killed")
    result: tuple[Answer | None, Exception | None] = pickle.loads(text)
    if result[1] is not None:
        raise result[1]
    return cast("Answer", result[0])


def _keep(work: Callable[[], Answer], orphaned: Callable[[], None], settings: int, parent: int) -> None:
    def end(*_: object) -> None:
        raise SystemExit

    os.setsid()
    signal.signal(signal.SIGTERM, end)
    end_with_parent(parent, signal.SIGTERM)
    result: tuple[object, Exception | None]
    try:
        try:
            result = work(), None
        except Exception as exc:  # noqa: BLE001 - the parent raises it
            result = None, exc
        with suppress(OSError), os.fdopen(settings, "wb") as file:
            file.write(pickle.dumps(result))
    finally:
        if os.getppid() != parent:
            orphaned()


def _children(*, ended: bool = False) -> dict[int, list[int]]:
    """Return the children per process: running ones, or ended ones that wait for their parent."""
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
    """Return the resident memory of a process; 0 once it has ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * resource.getpagesize()
