"""A lock between the processes of a node; its holder runs at higher priority because all others wait for it.

The kernel keeps the lock and releases it when its holder ends, in whatever way.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.errors import LedgerError
from slurm_plugin.core.files.locks import release

_FIRST_POLL_S, _LONGEST_POLL_S = 0.001, 0.05
"""Growing, so that many waiting hooks leave the processor to the one that holds the lock."""


class NodeLock:
    """One lock; its file stays."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def make(self) -> None:
        """Create its file, and the folder, where they are missing.

        Raises:
            LedgerError: They cannot be created.
        """
        os.close(self._open())

    @contextmanager
    def acquired(self, deadline: Deadline) -> Iterator[None]:
        """Wait for the lock and hold it.

        Raises:
            LedgerError: The folder cannot be used, or another process held the lock too long.
        """
        handle = self._open()
        try:
            pause_s = _FIRST_POLL_S
            while not _try_lock(handle):
                if deadline.passed():
                    raise LedgerError(f"{self._path}: held by another hook for too long")
                self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_POLL_S)
            with _first_on_the_processor():
                yield
        finally:
            release(handle)

    @contextmanager
    def tried(self) -> Iterator[bool]:
        """Take the lock if it is free, without waiting; yield whether it was.

        Raises:
            LedgerError: The folder cannot be used.
        """
        handle = self._open()
        try:
            if _try_lock(handle):
                with _first_on_the_processor():
                    yield True
            else:
                yield False
        finally:
            release(handle)

    def _open(self) -> int:
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise LedgerError(f"{self._path.parent}: {exc.strerror}") from exc


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def _first_on_the_processor() -> Iterator[None]:
    """Run with the highest ordinary priority, where that is allowed, and restore the former one afterwards."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    try:
        yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
