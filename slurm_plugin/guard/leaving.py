"""Runs of jobs that are being stopped, until their usage and bookings are released."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.guard.incidents import Incident
from slurm_plugin.guard.violation import Violation

LEAVING_S = 15.0
"""A job that is being stopped has ended by then; otherwise it counts as running."""


class Leaving:
    """Runs that are leaving this node's GPUs.

    The incidents of an earlier monitor name the jobs that it was stopping when it ended. Parts of them may still run.
    """

    def __init__(self, incidents: Iterable[Incident]) -> None:
        """Continue from an earlier monitor's incidents."""
        self._notified_s: dict[tuple[int, int], float] = {}
        self._unfinished = [one for one in incidents if one.stopped]

    def notified(self, violation: Violation, now_s: float) -> None:
        """Record that the job of a violation is being stopped.

        Args:
            violation: The reason.
            now_s: The monotonic clock.
        """
        if violation.job_id is not None:
            self._notified_s[violation.job_id, violation.restart] = now_s

    def runs(self, now_s: float) -> Collection[tuple[int, int]]:
        """Return (job id, restart) of the runs that are leaving; `now_s` is the monotonic clock."""
        self._notified_s = {run: at_s for run, at_s in self._notified_s.items() if now_s - at_s <= LEAVING_S}
        return self._notified_s.keys()

    def unfinished(self, ledger: Ledger) -> list[Violation]:
        """Return, once, what must be stopped again: runs that an earlier monitor was stopping and that still exist."""
        here = {(allocation.job_id, allocation.restart) for allocation in ledger.allocations}
        found = [_violation(one) for one in self._unfinished if (one.culprit, one.restart) in here]
        self._unfinished = []
        return found


def _violation(incident: Incident) -> Violation:
    return Violation(
        kind="overrun",
        gpu=incident.gpu,
        job_id=incident.culprit,
        user_id=incident.culprit_user_id,
        restart=incident.restart,
        used_bytes=0,
        limit_bytes=0,
        free_bytes=incident.least_free_bytes,
        processes=(),
        response="requeue",
    )
