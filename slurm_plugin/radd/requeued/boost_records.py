"""Decide priority boosts: which jobs get one, how much, and until when. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm_plugin.core.comments.admin_comment import RecoveryCause
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.slurm.control import JobView, Standing

DAY_S = 86_400.0

IN_PROLOG = "Prolog"
"""Slurm's reason of a running job whose Prolog has not ended (22.05.8, 24.11.5)."""

CHANGEABLE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostCause:
    """A rerun that may get a priority boost.

    Attributes:
        fault: The cause of its last end.
        profile_key: The model whose estimate failed; None if unknown.
    """

    fault: RecoveryCause
    profile_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostRecord:
    """One priority boost, kept for a day.

    Attributes:
        job_id: Slurm's job id.
        user_id: The job's user.
        time_s: When it was given, seconds since the epoch.
        restarts: Restart count of the rerun that it is for.
        nice_before: The job's nice value without it.
        nice_boosted: The job's nice value with it.
        profile_key: The model whose estimate failed; None for a victim.
        returned: Whether it was reverted.
        lift: The part of it that restores a requeued job's queue position (queue_positions.py).
        nice_was: The nice value before nice_boosted was set, in case Slurm did not get the change. None if nice_before.
    """

    job_id: int
    user_id: int
    time_s: float
    restarts: int
    nice_before: int
    nice_boosted: int
    profile_key: str | None = None
    returned: bool = False
    lift: int = 0
    nice_was: int | None = None

    @property
    def boost(self) -> int:
        """Return the boost without the raise to the job's queue position."""
        return self.nice_before - self.nice_boosted - self.lift

    @property
    def own_values(self) -> tuple[int | None, ...]:
        """Return the nice values that RAD has set; any other was set by an admin or the user, and stays."""
        return (self.nice_boosted, self.nice_was)


def record_for(
    job: JobView,
    cause: BoostCause,
    settings: PartitionConfig,
    records: tuple[BoostRecord, ...],
    *,
    now_s: float,
) -> BoostRecord | None:
    """Return the boost of a waiting rerun, or None.

    One model of one user gets a boost at most once a day: the next submission is booked from its observed usage.

    Args:
        job: The rerun, pending.
        cause: Why it may get one.
        settings: Its partition's settings.
        records: All recorded boosts.
        now_s: Seconds since the epoch.
    """
    lately = [record for record in records if _counts_for_user(record, job.user_id, now_s)]
    boost = min(settings.recovery_boost, settings.recovery_priority - job.priority)
    if boost <= 0 or is_held(job) or len(lately) >= settings.boosts_per_day:
        return None
    if any(record.job_id == job.job_id and not record.returned for record in records):
        return None
    if cause.profile_key is not None and any(record.profile_key == cause.profile_key for record in lately):
        return None
    return BoostRecord(
        job_id=job.job_id,
        user_id=job.user_id,
        time_s=now_s,
        restarts=job.restarts,
        nice_before=job.nice,
        nice_boosted=job.nice - boost,
        profile_key=cause.profile_key if cause.fault == "estimate" else None,
    )


def _counts_for_user(record: BoostRecord, user_id: int, now_s: float) -> bool:
    """Return whether a record is of a boost that this user got in the last 24 hours."""
    return record.user_id == user_id and record.boost > 0 and now_s - record.time_s < DAY_S


def raised(record: BoostRecord | None, job: Standing, points: int, *, now_s: float) -> BoostRecord | None:
    """Return the boost of a job that is raised to its queue position; None if nothing changes.

    Args:
        record: Its current boost, not yet reverted; None if it has none.
        job: The job, as Slurm shows it now.
        points: The total raise to its position, in addition to a boost for another reason.
        now_s: Seconds since the epoch.
    """
    if record is None:
        return (
            BoostRecord(
                job_id=job.job_id,
                user_id=job.user_id,
                time_s=now_s,
                restarts=job.restarts,
                nice_before=job.nice,
                nice_boosted=job.nice - points,
                lift=points,
            )
            if points
            else None
        )
    nice = record.nice_boosted + record.lift - points
    if nice == job.nice or job.nice not in (*record.own_values, record.nice_before):
        return None
    return replace(record, nice_boosted=nice, nice_was=job.nice, lift=points)


def is_due(record: BoostRecord, job: JobView) -> bool:
    """Return whether a boost can be reverted: its rerun has started, or was requeued by another cause.

    A job in its Prolog may still be requeued by RAD.

    Slurm changes no job that has ended. A job that ended too soon is checked until Slurm forgets it, as its user may
    requeue it. A held job stays unchanged until it is released: a new nice value would release it (seen on 22.05.8).

    Args:
        record: A boost that was not reverted.
        job: Its job, as Slurm shows it now.
    """
    if job.state not in CHANGEABLE or is_held(job):
        return False
    return (job.state == "RUNNING" and job.reason != IN_PROLOG) or job.restarts > record.restarts


def is_held(job: JobView) -> bool:
    """Return whether a job is kept from starting, or from continuing (a suspended job has no priority)."""
    return job.state != "RUNNING" and job.priority == 0
