"""How much longer than its --time a job may run that shared its GPU.

Users know how long a job takes on a GPU of its own. One that shares takes longer, and Slurm would end it shortly before
its goal. So each second beside another user's job counts as a second lost, and may be made up for at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

EARLY_S = 300.0
"""A job is looked at this long before its end, so that a `--signal` shortly before the limit comes late too."""

MINUTE_S = 60
"""Slurm counts limits in minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What was given to one job.

    Attributes:
        asked_s: Its time limit before anything was given.
        granted_s: What was given since, over all its runs on this node.
    """

    asked_s: float
    granted_s: float = 0.0


def more_minutes(granted: Granted, *, shared_s: float, left_s: float, factor: float, room_s: float) -> int:
    """Return by how many minutes a job's limit rises now.

    Args:
        granted: What it asked for and was given so far.
        shared_s: How long this run was on a GPU beside another user's job.
        left_s: Until Slurm ends it.
        factor: Its limit grows to this many times what it asked for at most; 1 gives nothing.
        room_s: By how much its end may move: the partition's longest limit and the node's next reservation.
    """
    if left_s > EARLY_S:
        return 0
    most = int((factor - 1) * granted.asked_s // MINUTE_S)
    earned = -int(-shared_s // MINUTE_S)
    given = -int(-granted.granted_s // MINUTE_S)
    return max(0, int(min(min(earned, most) - given, room_s / MINUTE_S)))
