"""Print the progress of a run of many jobs now and then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

EVERY_S = 5.0


class Progress:
    """Prints a bar of the elapsed share of the run's time."""

    def __init__(self, now: float, stop_at_s: float) -> None:
        self._shown_s = self._begin_s = now
        self._stop_at_s = stop_at_s

    def show(
        self, now: float, counts: Mapping[str, int], states: Iterable[str], *, last: bool = False
    ) -> None:
        """Print a line if the last one is a few seconds old.

        Args:
            now: Monotonic time in seconds.
            counts: Outcomes so far.
            states: States of the running processes.
            last: Print in any case.
        """
        if not last and now - self._shown_s < EVERY_S:
            return
        self._shown_s = now
        passed = now - self._begin_s
        rate = counts.get("ok", 0) / max(passed, 1e-9)
        share = min(1.0, passed / max(1.0, self._stop_at_s - self._begin_s))
        bar = "#" * int(20 * share) + "." * (20 - int(20 * share))
        print(f"[{bar}] {passed:4.0f} s  {rate:.2f}/s  {dict(counts)}  {dict(Counter(states))}", flush=True)
