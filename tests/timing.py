"""Time limits of tests: allowances for a busy machine, multiplied by the environment variable RAD_TIME_FACTOR."""

from __future__ import annotations

from lab.daemons import TIME_FACTOR


def within(seconds: float) -> float:
    """Return a time limit in seconds, as long as this machine gets: RAD_TIME_FACTOR times as long as on an idle one."""
    return seconds * TIME_FACTOR
