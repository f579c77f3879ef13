"""Where a job stood in Slurm's queue before its Prolog put it back: what a note about it carries.

Slurm takes a requeued job for one that was submitted just then. SubmitTime and AccrueTime are new on 22.05.8, 24.11.5
and 26.05.5, so that its age counts from there and it comes behind its equals; under priority/basic of 24.11.5 its
priority is new as well (`tests/cluster/test_turns.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A job's place, as it was when the job was started first.

    Attributes:
        submitted_s: When it was submitted, seconds since the epoch: equals start in this order.
        accrues_s: From when its age counted, seconds since the epoch; None if it had none.
        priority: Its priority without what its nice value takes off.
        nice: That nice value: whoever finds a lower one, and lent nothing himself, sees another's loan.
    """

    submitted_s: int
    accrues_s: int | None
    priority: int
    nice: int = 0


def turn_values(turn: Turn | None) -> dict[str, int | None]:
    """Return what a note says of a turn, by name, nothing below 0; None for what it leaves out."""
    if turn is None:
        return {}
    return {
        "submitted": turn.submitted_s,
        "accrued": turn.accrues_s,
        "priority": turn.priority,
        "nice": turn.nice if turn.nice > 0 else None,
        "raised": -turn.nice if turn.nice < 0 else None,
    }


def turn_in(values: dict[str, int]) -> Turn | None:
    """Return the turn that a note tells; None if it tells none.

    >>> turn_in({"submitted": 1, "priority": 3, "raised": 5})
    Turn(submitted_s=1, accrues_s=None, priority=3, nice=-5)
    """
    submitted, priority = values.get("submitted"), values.get("priority")
    if submitted is None or priority is None:
        return None
    nice = values.get("nice", 0) - values.get("raised", 0)
    return Turn(submitted_s=submitted, accrues_s=values.get("accrued"), priority=priority, nice=nice)
