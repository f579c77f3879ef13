"""MPS servers that ended while jobs used them: all their clients failed with them."""

from __future__ import annotations

from slurm_plugin.guard.incidents import Incident
from slurm_plugin.mps import Mps


def ended_servers(mps: Mps, *, now_s: float) -> list[Incident]:
    """Return an incident for each of RAD's MPS servers, or its daemon, that is gone while jobs are counted on it.

    Args:
        mps: The servers of this node.
        now_s: Seconds since the epoch.
    """
    return [
        Incident(
            kind="server",
            gpu=gpu,
            first_s=now_s,
            last_s=now_s,
            victims=tuple(sorted(jobs)),
            detail=f"the MPS server on {gpu} (pid {process.pid}) ended while jobs used it",
        )
        for process, (gpu, jobs) in mps.servers().items()
        if jobs and not process.runs()
    ]
