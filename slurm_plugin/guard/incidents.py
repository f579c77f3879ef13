"""Incidents on this node, for the Epilogs of the affected jobs and of the jobs that caused them.

RUN/monitor/incidents.json   owned by root, 0600, replaced whole; at most MOST of the last KEPT_S seconds
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slurm_plugin.core.records.node import Diagnosis, Outcome
from slurm_plugin.core.units import MIB
from slurm_plugin.guard.violation import Violation

KEPT_S = 900.0
MOST = 200

RECENT_S = 15.0
"""A job that runs out of memory reports it at once; its Epilog runs within seconds."""

FAULT_S = 60.0
"""A job whose CUDA calls fail may take this long to end: it writes its output and waits for its data loaders."""

MOST_UNEXPLAINED = 5
"""Reruns of a job for MPS servers that ended and no job is known to have caused it. After these, such an end no longer
explains the job's end: the job itself may be the cause, again in each run. Requeues and preemptions do not count."""

JOINED_S = 30.0
"""Samples of one violation at most this far apart are one incident."""

SAMPLE_S = 1.0
"""Interval between samples of the monitor. A job that failed in between is missing from the sample that shows the
overrun."""

OVERHEAD_BYTES = 256 * MIB
"""Memory that a limit counts beyond what NVML shows for a client, and that a sample may have missed."""

IncidentKind = Literal[
    "memory", "overrun", "foreign-gpu", "outside-mps", "unmanaged", "idle", "fault", "server"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One incident.

    Attributes:
        kind: As a violation's; "fault": an invalid memory access of the only job on an MPS server; "server": an MPS
            server ended with the jobs on it, and which of them caused that, if any, is not known.
        gpu: UUID of the GPU.
        first_s: When it was first seen, seconds since the epoch.
        last_s: When it was last seen.
        culprit: Id of the job that caused it; None if no job is known to have.
        culprit_user_id: That job's user; None if unknown.
        restart: Restart count of the culprit's run.
        least_free_bytes: The least free memory of the GPU during the incident.
        victims: Jobs that were on the MPS server.
        stopped: Whether the culprit was stopped for it.
        rerun: Whether the culprit is to run again.
        detail: One sentence for people.
    """

    kind: IncidentKind
    gpu: str
    first_s: float
    last_s: float
    culprit: int | None = None
    culprit_user_id: int | None = None
    restart: int = 0
    least_free_bytes: int = 0
    victims: tuple[int, ...] = ()
    stopped: bool = False
    rerun: bool = False
    detail: str = ""


def incident_of(violation: Violation, *, now_s: float, stopped: bool = False) -> Incident:
    """Return the incident of a violation.

    Args:
        violation: The violation.
        now_s: Seconds since the epoch.
        stopped: Whether the job is stopped for it now.
    """
    return Incident(
        kind=violation.kind,
        gpu=violation.gpu,
        first_s=now_s,
        last_s=now_s,
        culprit=violation.job_id,
        culprit_user_id=violation.user_id,
        restart=violation.restart,
        least_free_bytes=violation.free_bytes,
        stopped=stopped,
        rerun=stopped and violation.response == "requeue",
        detail=violation.sentence(),
    )


def with_incidents(
    before: Sequence[Incident], new: Iterable[Incident], *, now_s: float
) -> tuple[Incident, ...]:
    """Return the incidents, with new ones merged into those they continue and old ones dropped.

    Args:
        before: Incidents recorded so far.
        new: Incidents of this sample.
        now_s: Seconds since the epoch.
    """
    kept = [one for one in before if now_s - one.last_s <= KEPT_S]
    for one in new:
        same = next((i for i, old in enumerate(kept) if _goes_on(old, one)), None)
        if same is None:
            kept.append(one)
        else:
            old = kept[same]
            kept[same] = replace(
                one,
                first_s=old.first_s,
                least_free_bytes=min(old.least_free_bytes, one.least_free_bytes),
                stopped=old.stopped or one.stopped,
                rerun=old.rerun or one.rerun,
            )
    return tuple(sorted(kept, key=lambda one: one.last_s)[-MOST:])


def _goes_on(old: Incident, new: Incident) -> bool:
    same = (old.kind, old.gpu, old.culprit, old.culprit_user_id, old.restart, old.victims) == (
        (new.kind, new.gpu, new.culprit, new.culprit_user_id, new.restart, new.victims)
    )
    return same and abs(new.last_s - old.last_s) <= JOINED_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A job that ended badly, as known to its Epilog.

    Attributes:
        job_id: The job.
        restart: Restart count of the run that ended.
        gpus: UUIDs of the GPUs allocated to it.
        limit_bytes: Memory guaranteed to it on each GPU: a job above its booking is never a victim.
        outcome: Why it ended, according to its output.
        left_s: When the monitor last saw it on a GPU, seconds since the epoch; None if never.
        server_ends: Number of reruns so far because an MPS server ended for an unknown reason.
    """

    job_id: int
    restart: int
    gpus: tuple[str, ...]
    limit_bytes: int
    outcome: Outcome
    left_s: float | None = None
    server_ends: int = 0


def diagnosis_of(ended: Ended, incidents: Sequence[Incident], *, now_s: float) -> Diagnosis | None:
    """Return the monitor's verdict on a job that ended badly; None if the job itself was the cause.

    A job that ran out of memory is a victim only if its usage and its failed request fit within its limit, and another
    job or process used memory without a right to it on the same GPU at that time, and too little memory was left.
    A job that failed otherwise is a victim only if its MPS server ended, the job was not alone on a server that it
    ended by a fault, and it has not been rerun often for that.

    Args:
        ended: The job.
        incidents: What went wrong on this node.
        now_s: Seconds since the epoch.
    """
    for one in reversed(incidents):
        if one.stopped and (one.culprit, one.restart) == (ended.job_id, ended.restart):
            return Diagnosis(
                kind="idle" if one.kind == "idle" else "overrun",
                culprit=one.culprit,
                culprit_user_id=one.culprit_user_id,
                rerun=one.rerun,
                detail=one.detail,
            )
    at_fault = caused_fault(ended.job_id, incidents, now_s=now_s) is not None
    for one in reversed(incidents):
        if one.culprit != ended.job_id and (
            _took_memory_of(one, ended, now_s) or (not at_fault and _ended_with(one, ended, now_s))
        ):
            return Diagnosis(
                kind="victim",
                culprit=one.culprit,
                culprit_user_id=one.culprit_user_id,
                server_ends=ended.server_ends + 1 if one.kind == "server" else 0,
                detail=one.detail,
            )
    return None


def caused_fault(job_id: int, incidents: Sequence[Incident], *, now_s: float) -> Incident | None:
    """Return the last fault that a job caused a moment ago, alone on its MPS server; None for none.

    Args:
        job_id: The job.
        incidents: What went wrong on this node.
        now_s: Seconds since the epoch.
    """
    for one in reversed(incidents):
        if one.kind == "fault" and one.culprit == job_id and abs(now_s - one.last_s) <= FAULT_S:
            return one
    return None


def _took_memory_of(one: Incident, ended: Ended, now_s: float) -> bool:
    outcome = ended.outcome
    attempted_bytes = outcome.attempted_bytes or 0
    peak_bytes = outcome.peak_bytes or 0
    gone = ended.left_s is not None and one.last_s > ended.left_s + SAMPLE_S / 2
    return (
        outcome.kind == "gpu-oom"
        and one.kind in ("memory", "overrun", "foreign-gpu", "unmanaged")
        and one.gpu in ended.gpus
        and abs(now_s - one.last_s) <= RECENT_S
        and one.least_free_bytes
        <= attempted_bytes + OVERHEAD_BYTES + gone * peak_bytes  # freed by the ended job
        and peak_bytes + attempted_bytes + OVERHEAD_BYTES <= ended.limit_bytes
    )


def _ended_with(one: Incident, ended: Ended, now_s: float) -> bool:
    return (
        ended.outcome.kind in ("failed", "gpu-oom")
        and one.kind == "server"
        and ended.server_ends < MOST_UNEXPLAINED
        and ended.job_id in one.victims
        and abs(now_s - one.last_s) <= FAULT_S
    )
