"""Decide which runs may start training, so that together they never fill the GPU. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PATIENCE_S = 20.0
"""Seconds of waiting after which smaller runs no longer overtake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRun:
    """A run ready to train.

    Attributes:
        key: Its process id.
        bytes_wanted: Memory to keep free for it.
        alone: Whether it requires that no other run trains.
        since_s: Time at which it became ready.
    """

    key: int
    bytes_wanted: int
    alone: bool
    since_s: float


def admit(waiting: Sequence[WaitingRun], running: Sequence[int], free_bytes: int, now_s: float) -> list[int]:
    """Return the keys that may start, oldest first; smaller ones may overtake larger ones for a while.

    Args:
        waiting: Runs that are ready.
        running: Reservations of the training runs, -1 for one that must be alone.
        free_bytes: Memory that is neither used nor reserved.
        now_s: Current time, on the clock of `since_s`.
    """
    if any(reserved < 0 for reserved in running):
        return []
    admitted: list[int] = []
    for run in sorted(waiting, key=lambda w: w.since_s):
        if run.alone:
            fits = not running and not admitted
        else:
            fits = run.bytes_wanted <= free_bytes or (not running and not admitted)
        if fits:
            admitted.append(run.key)
            free_bytes -= run.bytes_wanted
            if run.alone:
                break
        elif now_s - run.since_s > PATIENCE_S:
            break
    return admitted
