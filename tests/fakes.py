"""Stand-ins that several tests share."""

from __future__ import annotations


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self.time_s = now_s
        self.slept: list[float] = []

    def now_s(self) -> float:
        return self.time_s

    def monotonic_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        self.time_s += duration_s
