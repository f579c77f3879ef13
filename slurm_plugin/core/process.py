"""Who a process is: a pid alone is reused, a pid with its start time is not."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")


def started_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it does not run.

    Source: proc(5), /proc/PID/stat, fields 3 and 22; a zombie has given back its memory.
    """
    try:
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def owner_of(pid: int, proc: Path = PROC) -> int | None:
    """Return the user that a process runs as; None if it does not run."""
    try:
        return (proc / str(pid)).stat().st_uid
    except OSError:
        return None
