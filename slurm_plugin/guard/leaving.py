"""Runs of jobs that are being stopped, until their usage and bookings are released."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.guard.finding import Finding
from slurm_plugin.guard.incidents import Incident

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

    def notified(self, finding: Finding, now_s: float) -> None:
        """Record that the job of a finding is being stopped.

        Args:
            finding: The reason.
            now_s: The monotonic clock.
        """
        if finding.job_id is not None:
            self._notified_s[finding.job_id, finding.restart] = now_s

    def runs(self, now_s: float) -> Collection[tuple[int, int]]:
        """Return (job id, restart) of the runs that are leaving; `now_s` is the monotonic clock."""
        self._notified_s = {run: at_s for run, at_s in self._notified_s.items() if now_s - at_s <= LEAVING_S}
        return self._notified_s.keys()

    def unfinished(self, ledger: Ledger) -> list[Finding]:
        """Return, once, what must be stopped again: runs that an earlier monitor was stopping and that still exist.

        Args:
            ledger: The allocations.
        """
        here = {(allocation.job_id, allocation.restart) for allocation in ledger.allocations}
        found = [_finding(one) for one in self._unfinished if (one.culprit, one.restart) in here]
        self._unfinished = []
        return found


def _finding(incident: Incident) -> Finding:
    return Finding(
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
