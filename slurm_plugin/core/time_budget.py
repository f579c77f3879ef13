"""A limit on a hook's own time, enforced from inside: Slurm waits for its hooks, by default without end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from slurm_plugin.core.errors import RadError

HOOK_BUDGET_S = 5.0
"""slurmctld calls a Prolog hung near MessageTimeout, 10 s by default."""


class TimeIsUpError(RadError):
    """A hook used up its time."""


@contextmanager
def time_budget(budget_s: float) -> Iterator[None]:
    """Interrupt what runs inside after so many seconds; only for the main thread of a process of our own.

    Raises:
        TimeIsUpError: The time is over.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeIsUpError(f"stopped after {budget_s:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, budget_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
