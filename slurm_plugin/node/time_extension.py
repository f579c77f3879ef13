"""Compute how much longer than its --time a job may run that shared its GPU.

Users know how long a job takes on an exclusive GPU. A job that shares takes longer, and Slurm would end it shortly
before it is done. So each second that it shares with another user's job counts as lost, and may be added at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

EARLY_S = 300.0
"""A job is checked this long before its end, so that a `--signal` shortly before the limit is delayed, too."""

MINUTE_S = 60
"""Slurm counts limits in minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """Time limit extension of one job.

    Attributes:
        requested_s: Its time limit before any extension.
        granted_s: Total extension over all its runs on this node.
    """

    requested_s: float
    granted_s: float = 0.0


def more_minutes(granted: Granted, *, shared_s: float, left_s: float, factor: float, margin_s: float) -> int:
    """Return by how many minutes a job's limit is raised now.

    Args:
        granted: Its requested limit and its extension so far.
        shared_s: How long this run shared a GPU with another user's job.
        left_s: Seconds until Slurm ends it.
        factor: Its limit grows to at most this many times the requested one; 1 gives no extension.
        margin_s: By how much its end may move: the partition's longest limit and the node's next reservation.
    """
    if left_s > EARLY_S:
        return 0
    most = int((factor - 1) * granted.requested_s // MINUTE_S)
    earned = -int(-shared_s // MINUTE_S)
    given = -int(-granted.granted_s // MINUTE_S)
    return max(0, int(min(min(earned, most) - given, margin_s / MINUTE_S)))
