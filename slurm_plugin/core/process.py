"""Who a process is: a pid alone is reused, a pid with its start time is not."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


def started_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it does not run.

    Args:
        pid: The process.
        proc: Where /proc is.

    Source: proc(5), /proc/PID/stat, fields 3 and 22; a zombie has given back its memory.
    """
    try:
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def owner_of(pid: int, proc: Path = PROC) -> int | None:
    """Return the user that a process runs as; None if it does not run.

    Args:
        pid: The process.
        proc: Where /proc is.
    """
    try:
        return (proc / str(pid)).stat().st_uid
    except OSError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that we may end later: its pid is ours only while the start time fits too."""

    pid: int
    started_ticks: int

    @classmethod
    def running(cls, pid: int, proc: Path = PROC) -> Process | None:
        """Return the process that has this pid now; None if none does.

        Args:
            pid: Of the process.
            proc: Where /proc is.
        """
        ticks = started_ticks(pid, proc)
        return None if ticks is None else cls(pid=pid, started_ticks=ticks)

    def runs(self, proc: Path = PROC) -> bool:
        """Return whether it is still this very process."""
        return started_ticks(self.pid, proc) == self.started_ticks

    def kill(self) -> bool:
        """Send SIGKILL to this very process, never to another that has its pid by now; return whether it was there.

        The descriptor holds on to one process (pidfd_open(2)); its start time is looked at after it is open.
        """
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if not self.runs():
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
        finally:
            os.close(handle)
