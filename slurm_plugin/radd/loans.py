"""A loan of priority: who may have one, how much, and until when. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_plugin.core.config import PartitionConfig
from slurm_plugin.core.note import Fault
from slurm_plugin.slurm.control import JobView

DAY_S = 86_400.0

CHANGEABLE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A rerun that asks for priority.

    Attributes:
        fault: Whose fault its last end was.
        profile_key: The model whose estimate failed; None if unknown.
    """

    fault: Fault
    profile_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """One loan, kept for a day.

    Attributes:
        job_id: Slurm's job id.
        user_id: The owner.
        time_s: When it was lent, seconds since the epoch.
        restarts: Restart count of the rerun that it is for.
        nice_before: The job's nice value without it.
        nice_lent: The job's nice value with it.
        profile_key: The model whose estimate failed; None for a victim.
        returned: Whether it was taken back.
    """

    job_id: int
    user_id: int
    time_s: float
    restarts: int
    nice_before: int
    nice_lent: int
    profile_key: str | None = None
    returned: bool = False


def loan_for(
    job: JobView, claim: Claim, settings: PartitionConfig, loans: tuple[Loan, ...], *, now_s: float
) -> Loan | None:
    """Return what a waiting rerun is lent, or None.

    One model of one user is lent for once a day: the next submission is booked by what was seen of it.

    Args:
        job: The rerun, pending.
        claim: Why it asks.
        settings: Its partition's settings.
        loans: Every loan that is remembered.
        now_s: Seconds since the epoch.
    """
    lately = [loan for loan in loans if loan.user_id == job.user_id and now_s - loan.time_s < DAY_S]
    known = claim.profile_key is not None and claim.profile_key in {loan.profile_key for loan in lately}
    has_one = any(loan.job_id == job.job_id and not loan.returned for loan in loans)
    boost = min(settings.recovery_boost, settings.recovery_priority - job.priority)
    if known or has_one or held(job) or boost <= 0 or len(lately) >= settings.boosts_per_day:
        return None
    return Loan(
        job_id=job.job_id,
        user_id=job.user_id,
        time_s=now_s,
        restarts=job.restarts,
        nice_before=job.nice,
        nice_lent=job.nice - boost,
        profile_key=claim.profile_key if claim.fault == "estimate" else None,
    )


def is_due(loan: Loan, job: JobView) -> bool:
    """Return whether a loan can be taken back: its rerun has started, or was requeued by somebody else.

    Slurm changes no job that has ended. One that ended too soon is looked at until Slurm forgets it, as its owner may
    requeue it. A held one is left alone until somebody releases it: a change of its nice value would (seen on 22.05.8).

    Args:
        loan: A loan that was not taken back.
        job: Its job, as Slurm shows it now.
    """
    if job.state not in CHANGEABLE or held(job):
        return False
    return job.state == "RUNNING" or job.restarts > loan.restarts


def held(job: JobView) -> bool:
    """Return whether somebody keeps a job from starting, or from going on (a suspended job has no priority)."""
    return job.state != "RUNNING" and job.priority == 0
