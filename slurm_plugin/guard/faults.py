"""Faults that MPS servers told of: who wrote where he must not, and whose processes ended with his.

A server's log names processes by number alone. Whose they were was noted while they ran, once a second; on a GPU whose
memory is gone several fail within their first second, before anybody has seen them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from slurm_plugin.guard.incidents import Incident
from slurm_plugin.mps.faults import Fault


@dataclass(frozen=True, slots=True)
class Seen:
    """A process of a job, as a sample showed it.

    Attributes:
        last_s: When it was last seen, on the monotonic clock.
        job_id: Its job.
        user_id: Who runs that; None if unknown.
    """

    last_s: float
    job_id: int
    user_id: int | None


def fault_incidents(
    fault: Fault,
    *,
    gpu: str,
    user_id: int,
    seen: Mapping[int, Seen],
    on_server: Collection[int],
    now_s: float,
    sampled_s: float,
) -> list[Incident]:
    """Return the incidents that a fault is: of those whose processes were seen, and of those who were not.

    A server serves one user. Should its log name others, somebody put the words there, and they count for nothing.
    A process that nobody saw is of a job that is counted on the server, is not named and has no other process running.
    Was the culprit itself never seen, then it is one of several such jobs, and which is not known: it is as if the
    server had ended, and each may run again a few times. A single one of them is taken for the culprit.

    Args:
        fault: What the log says.
        gpu: UUID of the GPU.
        user_id: Whom the server serves.
        seen: Processes of jobs by pid, those that have ended lately among them.
        on_server: Jobs that are counted on the server.
        now_s: Seconds since the epoch.
        sampled_s: When the last sample was taken, on the clock of `seen`.
    """
    jobs_of = {pid: one.job_id for pid, one in seen.items() if one.user_id == user_id}
    culprit = jobs_of.get(fault.culprit)
    named = {jobs_of[pid] for pid in (*fault.ended, fault.culprit) if pid in jobs_of}
    living = {one.job_id for pid, one in seen.items() if one.last_s >= sampled_s and pid not in fault.ended}
    missed = set(fault.ended) - set(seen)
    unseen = set(on_server) - named - living if missed else set()
    nobody_knows = culprit is None and fault.culprit in missed
    who = f"job {culprit}"
    if culprit is None:
        who = "a process that nobody saw" if nobody_knows and unseen else "a process of no job"
    detail = f"{who} (pid {fault.culprit}) wrote where it must not, which ended all clients of its MPS server on {gpu}"
    sure = Incident(
        kind="fault",
        gpu=gpu,
        first_s=now_s,
        last_s=now_s,
        culprit=culprit,
        culprit_user_id=user_id,
        victims=tuple(sorted((named | (set() if nobody_knows else unseen)) - {culprit or 0})),
        detail=detail,
    )
    if not nobody_knows or len(unseen) < 2:
        return [sure]
    victims = tuple(sorted(unseen))
    return [
        sure,
        Incident(kind="server", gpu=gpu, first_s=now_s, last_s=now_s, victims=victims, detail=detail),
    ]
