"""A limit on the run time of a piece of RAD's code, enforced within the process.

It interrupts Python code and waiting system calls. It cannot interrupt a call that hangs in the kernel:
hooks/supervise.py kills the process then.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SOON_S = 0.001


class TimeIsUp(BaseException):
    """The time is over. No `except Exception` catches it."""


@contextmanager
def time_budget(budget_s: float) -> Iterator[None]:
    """Interrupt the code inside after a number of seconds; only for the main thread of a RAD process.

    Budgets may be nested: the outer one continues when the inner one ends.

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
