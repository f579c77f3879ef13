"""Time limit of a hook, enforced by a process that does nothing else.

Slurm waits for its hooks, by default without end. So a hook does its work in a child (process/child.py). If the time
is over before the child has ended by itself, a second child does the indispensable part: it releases the job's
allocation. The limits count from the start of the process in the kernel, so that they cover the interpreter's start on
a busy machine too.

The parent loads next to nothing, and the child loads its modules itself: a fork of a small process is quick, and the
limit covers a file server that hangs while a module is loaded.
"""

from __future__ import annotations

import io
import marshal
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from slurm_plugin.core.process.child import ChildError, in_child, monotonic_s
from slurm_plugin.core.text import one_line

LONGEST_START_S = 60.0
"""No interpreter takes longer to start; an older process has a different clock (that of a container)."""

_UNWIND_S = 0.3
"""A child is interrupted this long before it is killed: it ends programs that it waits for, and logs where it was."""

_LONGEST_COMPLAINT = 1000


class HookTimeLimits:
    """Time limits of a hook, in seconds since its process was started.

    Attributes:
        work_s: When its work is given up.
        end_s: When its second child is given up.
        least_s: Minimum time for each child, even if starting the interpreter took all the time.
    """

    __slots__ = ("end_s", "least_s", "work_s")

    def __init__(self, *, work_s: float, end_s: float, least_s: float = 1.5) -> None:
        self.work_s, self.end_s, self.least_s = work_s, end_s, least_s


LIMITS = {
    "prolog": HookTimeLimits(work_s=7.2, end_s=8.7),
    "task_prolog": HookTimeLimits(work_s=7.2, end_s=8.7),
    "epilog": HookTimeLimits(work_s=15.0, end_s=18.0),
}
"""Limits of each hook. slurmctld reports a Prolog as hung near MessageTimeout, 10 s by default; for an Epilog it waits.

Where the first of two slurmctld is a machine without power, a query takes two seconds more. A requeue by the Prolog has
three queries (6.2 s in total), and a rerun four (9.1 s).
"""


class _Ended:
    """Result of a child; `status` is None if its task was not completed."""

    __slots__ = ("err", "out", "status", "why")

    def __init__(self, status: int | None, why: str = "", out: str = "", err: str = "") -> None:
        self.status, self.why, self.out, self.err = status, why, out, err

    def to_bytes(self) -> bytes:
        return marshal.dumps((self.status, self.why, self.out, self.err))  # both sides are one interpreter

    @classmethod
    def of_bytes(cls, data: bytes) -> _Ended:
        return cls(*marshal.loads(data))


def hook_started_s() -> float:
    """Return when this process was started, on the monotonic clock."""
    return monotonic_s() - age_s()


def age_s() -> float:
    """Return for how long this process has run; 0 if the kernel reports nothing plausible.

    Source: proc(5), /proc/PID/stat, field 22.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0.0
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return age if 0 <= age < LONGEST_START_S else 0.0


def supervised(
    work: Callable[[], int],
    rescue: Callable[[str], int] | None,
    *,
    started_s: float,
    limits: HookTimeLimits,
) -> int:
    """Run a hook's work under its time limit and return the hook's exit status.

    The output of a child is printed here once it has ended by itself.

    Args:
        work: The hook; returns its exit status.
        rescue: What must be done if the work did not end by itself; it gets the reason and returns the exit status.
        started_s: When the hook was started, from `hook_started_s`.
        limits: The limits.
    """
    ended = _attempt(work, max(started_s + limits.work_s - monotonic_s(), limits.least_s))
    if ended.status is None and rescue is not None:
        why = ended.why
        ended = _attempt(lambda: rescue(why), max(started_s + limits.end_s - monotonic_s(), limits.least_s))
    sys.stdout.write(ended.out)
    sys.stdout.flush()
    with suppress(OSError):
        sys.stderr.write(ended.err or (f"rad: {ended.why}\n" if ended.status is None else ""))
    return ended.status or 0


def _attempt(task: Callable[[], int], timeout_s: float) -> _Ended:
    def data() -> bytes:
        return _run(task, timeout_s - _UNWIND_S).to_bytes()

    try:
        return _Ended.of_bytes(in_child(data, timeout_s=timeout_s))
    except ChildError as exc:
        return _Ended(None, str(exc))


def _run(task: Callable[[], int], timeout_s: float) -> _Ended:
    """In the child: run the task, and report how it ended."""
    import gc

    from slurm_plugin.core.process.time_budget import TimeIsUp, time_budget

    gc.disable()  # it runs for a tenth of a second, and keeps all that it loads
    status: int | None = None
    why = ""
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    try:
        with time_budget(timeout_s):
            status = int(task())
    except TimeIsUp as exc:
        why = f"{exc}{_place(exc)}"
    except Exception as exc:  # noqa: BLE001 - any unexpected error is reported, and the rescue follows
        why = f"{type(exc).__name__}: {exc}{_place(exc)}"
    complaint = sys.stderr.getvalue()[-_LONGEST_COMPLAINT:]
    return _Ended(status, one_line(why, _LONGEST_COMPLAINT), sys.stdout.getvalue(), complaint)


def _place(exc: BaseException) -> str:
    """Return where in RAD's code it happened."""
    place, step = "", exc.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        own = any(f"/{package}/" in file for package in ("slurm_plugin", "prolog", "epilog"))
        if own and not file.endswith("time_budget.py"):
            place = f" in {'/'.join(file.rsplit('/', 2)[1:])}:{step.tb_lineno}"
        step = step.tb_next
    return place
