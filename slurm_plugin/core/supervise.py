"""A hook's own limit of time, kept by a process that does nothing else.

Slurm waits for its hooks, by default without end. So a hook does its work in a child (core/child.py). If the time is
over before the child has ended by itself, a second child does what must be done all the same: it gives back what the
job holds. The limits count from the start of the process as the kernel tells it, so that they cover the interpreter's
start on a busy machine too.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from slurm_plugin.core.child import ChildError, in_child
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.process import age_s
from slurm_plugin.core.text import one_line
from slurm_plugin.core.time_budget import TimeIsUp, time_budget

_UNWIND_S = 0.3
"""A child is interrupted so long before it is killed: it ends the programs that it waits for, and says where it was."""

_LONGEST_COMPLAINT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a hook is over, in seconds since its process was started.

    Attributes:
        work_s: When its work is given up.
        end_s: When its second child is given up.
        least_s: What each child gets in any case, also where starting the interpreter took all the time.
    """

    work_s: float = 5.0
    end_s: float = 8.0
    least_s: float = 1.5


LIMITS = Limits()
"""slurmctld calls a Prolog hung near MessageTimeout, 10 s by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    status: int | None
    why: str = ""
    out: str = ""
    err: str = ""


def hook_started_s() -> float:
    """Return when this process was started, on the monotonic clock."""
    return SystemClock().monotonic_s() - age_s()


def supervised(
    work: Callable[[], int],
    rescue: Callable[[str], int] | None,
    *,
    started_s: float,
    limits: Limits = LIMITS,
) -> int:
    """Run a hook's work under its limit of time and return the hook's exit status.

    What a child prints is printed here once it has ended by itself.

    Args:
        work: The hook; returns its exit status.
        rescue: What must be done if the work did not end by itself; it is told why and returns the exit status.
        started_s: When the hook was started, as `hook_started_s` tells.
        limits: The limits.
    """
    now_s = SystemClock().monotonic_s
    ended = _attempt(work, max(started_s + limits.work_s - now_s(), limits.least_s))
    if ended.status is None and rescue is not None:
        why = ended.why
        ended = _attempt(lambda: rescue(why), max(started_s + limits.end_s - now_s(), limits.least_s))
    sys.stdout.write(ended.out)
    sys.stdout.flush()
    with suppress(OSError):
        sys.stderr.write(ended.err or (f"rad: {ended.why}\n" if ended.status is None else ""))
    return ended.status or 0


def _attempt(task: Callable[[], int], timeout_s: float) -> _Ended:
    def told() -> bytes:
        return _run(task, timeout_s - _UNWIND_S)

    try:
        return _Ended(**json.loads(in_child(told, timeout_s=timeout_s)))
    except ChildError as exc:
        return _Ended(status=None, why=str(exc))


def _run(task: Callable[[], int], timeout_s: float) -> bytes:
    """In the child: do it, and say how it ended."""
    status: int | None = None
    why = ""
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    try:
        with time_budget(timeout_s):
            status = task()
    except TimeIsUp as exc:
        why = f"{exc}{_place(exc)}"
    except Exception as exc:  # noqa: BLE001 - what nobody expected is told, and the rescue follows
        why = f"{type(exc).__name__}: {exc}{_place(exc)}"
    row = {
        "status": status,
        "why": one_line(why, _LONGEST_COMPLAINT),
        "out": sys.stdout.getvalue(),
        "err": sys.stderr.getvalue()[-_LONGEST_COMPLAINT:],
    }
    return json.dumps(row).encode()


def _place(exc: BaseException) -> str:
    """Return where in our own code it happened."""
    place, step = "", exc.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        ours = any(f"/{package}/" in file for package in ("slurm_plugin", "prolog", "epilog"))
        if ours and not file.endswith("time_budget.py"):
            place = f" in {'/'.join(file.rsplit('/', 2)[1:])}:{step.tb_lineno}"
        step = step.tb_next
    return place
