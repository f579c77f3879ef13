"""Time as an argument, so that no test sleeps."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Clock interface of the project."""

    def now_s(self) -> float:
        """Return seconds since the epoch, which an admin may set back or forward: for display and file dates."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds since the node's boot: they never jump, and are the same for all processes of a node."""
        ...

    def sleep(self, duration_s: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_s(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        """Wait."""
        time.sleep(duration_s)


class Deadline:
    """A point in time by which something must be over.

    >>> Deadline(SystemClock(), 5.0).remaining_s() > 4
    True
    """

    def __init__(self, clock: Clock, budget_s: float) -> None:
        self._clock = clock
        self._end_s = clock.monotonic_s() + budget_s

    def remaining_s(self) -> float:
        """Return the seconds left, never below zero."""
        return max(0.0, self._end_s - self._clock.monotonic_s())

    def passed(self) -> bool:
        """Return whether the time is up."""
        return self.remaining_s() <= 0.0
