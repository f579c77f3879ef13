"""Faults reported by MPS servers: which job made an invalid write, and whose processes ended with it.

A server's log names processes by pid, and the user of a pid when it connects. Their jobs were recorded while they ran,
once a second. On a GPU that is out of memory, several processes fail within their first second, before any sample shows
them; a process that makes an invalid access on purpose may be as short.
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
        user_id: The job's user; None if unknown.
    """

    last_s: float
    job_id: int
    user_id: int | None


def fault_incidents(
    fault: Fault,
    *,
    gpu: str,
    user_id: int | None,
    seen: Mapping[int, Seen],
    on_server: Collection[int],
    users: Mapping[int, int],
    now_s: float,
    sampled_s: float,
) -> list[Incident]:
    """Return the incidents of a fault: one for the processes that samples showed, one for those that none showed.

    A server serves the users of its jobs. If its log names another user's processes, these are ignored.
    A process that no sample showed belongs to a job that is counted on the server, is not named, and has no other
    process running. If the culprit itself was never sampled, it is one of these jobs, and of its user's where several
    users share the server. If there are several, the culprit is unknown: they are treated as if the server had ended,
    and each may be rerun a few times. A single one is taken as the culprit.

    Args:
        fault: What the log says.
        gpu: UUID of the GPU.
        user_id: The one user that the server serves; None if several may share it.
        seen: Processes of jobs by pid, including those that ended recently.
        on_server: Jobs that are counted on the server.
        users: User of each job that is, or was a moment ago, on the server.
        now_s: Seconds since the epoch.
        sampled_s: When the last sample was taken, on the clock of `seen`.
    """
    jobs_of = {
        pid: one.job_id
        for pid, one in seen.items()
        if one.user_id is not None and one.user_id in (user_id, users.get(one.job_id))
    }
    culprit, culprit_user_id = jobs_of.get(fault.culprit), user_id
    suspects = suspects_of(fault, on_server=on_server, users=users)
    if culprit is not None:
        culprit_user_id = seen[fault.culprit].user_id
    elif suspects:
        culprit, culprit_user_id = suspects[0] if len(suspects) == 1 else None, fault.user_id
    named = {jobs_of[pid] for pid in (*fault.ended, fault.culprit) if pid in jobs_of}
    living = {one.job_id for pid, one in seen.items() if one.last_s >= sampled_s and pid not in fault.ended}
    missed = set(fault.ended) - set(seen)
    unseen = set(on_server) - named - living if missed else set()
    unsure: set[int] = set()
    if culprit is None and fault.culprit in missed:
        unsure = unseen & set(suspects) if suspects else unseen
    subject = f"job {culprit}"
    if culprit is None:
        subject = "an unidentified process" if unsure or suspects else "a process of no job"
    what = "made an invalid memory access, which ended all clients of its MPS server"
    detail = f"{subject} (pid {fault.culprit}) {what} on {gpu}"
    sure = Incident(
        kind="fault",
        gpu=gpu,
        first_s=now_s,
        last_s=now_s,
        culprit=culprit,
        culprit_user_id=culprit_user_id,
        victims=tuple(sorted((named | (unseen - unsure)) - {culprit or 0})),
        detail=detail,
    )
    if len(unsure) < 2:
        return [sure]
    victims = tuple(sorted(unsure))
    return [
        sure,
        Incident(kind="server", gpu=gpu, first_s=now_s, last_s=now_s, victims=victims, detail=detail),
    ]


def suspects_of(fault: Fault, *, on_server: Collection[int], users: Mapping[int, int]) -> tuple[int, ...]:
    """Return the jobs of the culprit's user on a server that several may share; none if the log does not name the user.

    Args:
        fault: What the log says.
        on_server: Jobs that are counted on the server.
        users: User of each job that is, or was a moment ago, on the server; empty for one user's.
    """
    own = sorted(job for job, user_id in users.items() if user_id == fault.user_id)
    return tuple(job for job in own if job in on_server) or tuple(own)
