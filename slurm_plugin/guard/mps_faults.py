"""Faults reported by MPS servers: a job is known to have caused one only where it was alone on the server.

The log names one client of several as the cause, and often a wrong one (mps/faults.py). Where several jobs were on the
server, each runs again on a server of its own: the job at fault then faults alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_plugin.guard.incidents import Incident
from slurm_plugin.mps.faults import EndedClients


@dataclass(frozen=True, slots=True)
class SampledProcess:
    """A process of a job, as a sample showed it.

    Attributes:
        last_s: When it was last seen, on the monotonic clock.
        job_id: Its job.
        user_id: The job's user; None if unknown.
    """

    last_s: float
    job_id: int
    user_id: int | None


def fault_incident(
    fault: EndedClients,
    *,
    gpu: str,
    user_id: int | None,
    jobs: Mapping[int, int],
    seen: Mapping[int, SampledProcess],
    fresh: bool,
    now_s: float,
) -> Incident | None:
    """Return the incident of a fault; None if no job was on the server.

    If the log names a process of a job that cannot have been on the server, no job is known to be the cause.

    Args:
        fault: What the log says.
        gpu: UUID of the GPU.
        user_id: The one user that the server serves; None if several may share it.
        jobs: User of each job that is counted on the server, or was in the sample before.
        seen: Processes of jobs by pid, including those that ended recently.
        fresh: Whether the fault is known to be new: then the jobs are those that were on the server.
        now_s: Seconds since the epoch.
    """
    named = [seen[pid] for pid in fault if pid in seen]
    own = {
        one.job_id
        for one in named
        if one.user_id is not None and one.user_id in (user_id, jobs.get(one.job_id))
    }
    there = tuple(sorted(jobs.keys() | own))
    if not there:
        return None
    if len(there) == 1 and fresh and all(one.job_id in own for one in named):
        (culprit,) = there
        return Incident(
            kind="fault",
            gpu=gpu,
            first_s=now_s,
            last_s=now_s,
            culprit=culprit,
            culprit_user_id=jobs.get(culprit, user_id),
            detail=f"an invalid memory access of job {culprit} ended its MPS server on {gpu}",
        )
    ended = "the job" if len(there) == 1 else f"all {len(there)} jobs"
    return Incident(
        kind="server",
        gpu=gpu,
        first_s=now_s,
        last_s=now_s,
        victims=there,
        detail=f"an invalid memory access ended {ended} on an MPS server of {gpu}",
    )
