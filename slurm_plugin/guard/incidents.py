"""What went wrong on this node, for the Epilog of those that it hurt and of those that did it.

RUN/monitor/incidents.json   root's, 0600, replaced whole; at most MOST of the last KEPT_S seconds
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slurm_plugin.core.records.node import Outcome, Verdict
from slurm_plugin.core.units import MIB
from slurm_plugin.guard.finding import Finding

KEPT_S = 900.0
MOST = 200

RECENT_S = 15.0
"""A job that runs out of memory says so at once; its Epilog runs within seconds."""

FAULT_S = 60.0
"""A job whose CUDA calls fail may take so long to end: it writes what it has, and waits for its loaders."""

MOST_UNEXPLAINED = 5
"""Reruns of a job for a server that ended, nobody knows why, after which that no longer explains its end. The job
itself may be what ends it, again in each run. Put-backs and preemptions do not count."""

JOINED_S = 30.0
"""Samples of one thing no further apart are one incident."""

SAMPLE_S = 1.0
"""From one sample of the monitor to the next: a job that failed in between is gone in the one that shows the theft."""

OVERHEAD_BYTES = 256 * MIB
"""What a cap counts beyond what NVML shows of a client, and a sample may have missed."""

IncidentKind = Literal["memory", "surprise", "foreign-gpu", "outside-mps", "unmanaged", "fault", "server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One thing that went wrong.

    Attributes:
        kind: As a finding's; "fault": a client of an MPS server wrote where it must not, and all its clients ended;
            "server": an MPS server died.
        gpu: UUID of the GPU.
        first_s: When it was first seen, seconds since the epoch.
        last_s: When it was last seen.
        culprit: Job id of who did it; None if no job is known to have.
        culprit_user_id: Who runs that; None if unknown.
        restart: Restart count of the culprit's run.
        least_free_bytes: The least memory that was left on the GPU meanwhile.
        victims: Jobs whose processes ended with it, where that is known from root's own log.
        stopped: Whether the culprit was stopped for it.
        rerun: Whether it is to run again.
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


def incident_of(finding: Finding, *, now_s: float, stopped: bool = False) -> Incident:
    """Return the incident that a finding is.

    Args:
        finding: What is wrong.
        now_s: Seconds since the epoch.
        stopped: Whether it is stopped for it now.
    """
    return Incident(
        kind=finding.kind,
        gpu=finding.gpu,
        first_s=now_s,
        last_s=now_s,
        culprit=finding.job_id,
        culprit_user_id=finding.user_id,
        restart=finding.restart,
        least_free_bytes=finding.free_bytes,
        stopped=stopped,
        rerun=stopped and finding.response == "requeue",
        detail=finding.sentence(),
    )


def with_incidents(
    before: Sequence[Incident], new: Iterable[Incident], *, now_s: float
) -> tuple[Incident, ...]:
    """Return the incidents with new ones joined to those that they go on with, and old ones dropped.

    Args:
        before: Those remembered so far.
        new: Those of this sample.
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
    """A job that ended badly, as its Epilog knows it.

    Attributes:
        job_id: The job.
        restart: Restart count of the run that ended.
        gpus: UUIDs of the GPUs it held.
        limit_bytes: What was its own for sure on each: who goes above his booking is nobody's victim.
        outcome: Why it ended, by its own output.
        left_s: When the monitor last saw it on a GPU, seconds since the epoch; None if never.
        server_ends: How often it ran again already because an MPS server ended, nobody knows why.
    """

    job_id: int
    restart: int
    gpus: tuple[str, ...]
    limit_bytes: int
    outcome: Outcome
    left_s: float | None = None
    server_ends: int = 0


def verdict_of(ended: Ended, incidents: Sequence[Incident], *, now_s: float) -> Verdict | None:
    """Return what the monitor's record says of a job that ended badly; None if the end was its own.

    A job that ran out of memory is a victim only if what it held and asked for fits what it may have, and somebody
    else held what he may not on its GPU just then, of which too little was left. A job that failed otherwise is one
    only if the MPS server's own log names its process among those that another one's fault ended, or if the server is
    gone, the log does not name the job itself as the one at fault, and the job has not been run again often.

    Args:
        ended: The job.
        incidents: What went wrong on this node.
        now_s: Seconds since the epoch.
    """
    for one in reversed(incidents):
        if one.stopped and (one.culprit, one.restart) == (ended.job_id, ended.restart):
            return Verdict(
                kind="overrun",
                culprit=one.culprit,
                culprit_user_id=one.culprit_user_id,
                rerun=one.rerun,
                detail=one.detail,
            )
    at_fault = any(
        one.kind == "fault" and one.culprit == ended.job_id and abs(now_s - one.last_s) <= FAULT_S
        for one in incidents
    )
    for one in reversed(incidents):
        if one.culprit != ended.job_id and (
            _took_memory_of(one, ended, now_s) or (not at_fault and _ended_with(one, ended, now_s))
        ):
            return Verdict(
                kind="victim",
                culprit=one.culprit,
                culprit_user_id=one.culprit_user_id,
                server_ends=ended.server_ends + 1 if one.kind == "server" else 0,
                detail=one.detail,
            )
    return None


def _took_memory_of(one: Incident, ended: Ended, now_s: float) -> bool:
    outcome = ended.outcome
    asked = outcome.attempted_bytes or 0
    held = outcome.peak_bytes or 0
    gone = ended.left_s is not None and one.last_s > ended.left_s + SAMPLE_S / 2
    return (
        outcome.kind == "gpu-oom"
        and one.kind in ("memory", "surprise", "foreign-gpu", "unmanaged")
        and one.gpu in ended.gpus
        and abs(now_s - one.last_s) <= RECENT_S
        and one.least_free_bytes <= asked + OVERHEAD_BYTES + gone * held  # which is free by then
        and held + asked + OVERHEAD_BYTES <= ended.limit_bytes
    )


def _ended_with(one: Incident, ended: Ended, now_s: float) -> bool:
    return (
        ended.outcome.kind in ("failed", "gpu-oom")
        and (one.kind == "fault" or (one.kind == "server" and ended.server_ends < MOST_UNEXPLAINED))
        and ended.job_id in one.victims
        and abs(now_s - one.last_s) <= FAULT_S
    )
