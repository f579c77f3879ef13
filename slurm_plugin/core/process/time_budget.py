"""A limit on the time that a piece of our own code takes, enforced from inside.

It interrupts Python code and waiting system calls. What hangs in the kernel it cannot interrupt: hooks/supervise.py
kills the process then.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SOON_S = 0.001


class TimeIsUp(BaseException):
    """The time is over. No `except Exception` on the way keeps it."""


@contextmanager
def time_budget(budget_s: float) -> Iterator[None]:
    """Interrupt what runs inside after so many seconds; only for the main thread of a process of our own.

    Budgets may be nested: the outer one goes on when the inner one ends.

    Raises:
        TimeIsUp: The time is over.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp(f"stopped after {budget_s:g} s")

    handler = signal.signal(signal.SIGALRM, stop)
    outer_s, _ = signal.setitimer(signal.ITIMER_REAL, budget_s)
    try:
        yield
    finally:
        left_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if outer_s:
            signal.setitimer(signal.ITIMER_REAL, max(_SOON_S, outer_s - (budget_s - left_s)))
