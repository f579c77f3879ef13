"""Queue position of a job before its Prolog requeued it, as stored in a note.

Slurm treats a requeued job as just submitted. SubmitTime and AccrueTime are new on 22.05.8, 24.11.5 and 26.05.5, so
its age restarts and it queues behind equal jobs; under priority/basic of 24.11.5 its priority is new as well
(`tests/cluster/recovery/test_queue_positions.py`).
"""

from __future__ import annotations

from gpumemnet.records import frozen


@frozen
class QueuePosition:
    """Queue position of a job at its first start.

    Attributes:
        submitted_s: When it was submitted, seconds since the epoch: jobs of equal priority start in this order.
        accrues_s: From when its age counted, seconds since the epoch; None if it had none.
        priority: Its priority before its nice value is subtracted.
        nice: That nice value: a program that finds a lower one, and gave no boost itself, sees the boost of another.
    """

    submitted_s: int
    accrues_s: int | None
    priority: int
    nice: int = 0


def position_values(position: QueuePosition | None) -> dict[str, int | None]:
    """Return the values of a queue position in a note, by name, none below 0; None for what the note leaves out."""
    if position is None:
        return {}
    return {
        "submitted": position.submitted_s,
        "accrued": position.accrues_s,
        "priority": position.priority,
        "nice": position.nice if position.nice > 0 else None,
        "raised": -position.nice if position.nice < 0 else None,
    }


def position_in(values: dict[str, int]) -> QueuePosition | None:
    """Return the queue position in a note; None if it has none.

    >>> position_in({"submitted": 1, "priority": 3, "raised": 5})
    QueuePosition(submitted_s=1, accrues_s=None, priority=3, nice=-5)
    """
    submitted, priority = values.get("submitted"), values.get("priority")
    if submitted is None or priority is None:
        return None
    nice = values.get("nice", 0) - values.get("raised", 0)
    return QueuePosition(submitted_s=submitted, accrues_s=values.get("accrued"), priority=priority, nice=nice)
