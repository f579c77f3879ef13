"""Requeue a job because nothing that it may use is free now; this does not count as a recovery.

Tried on 22.05.8: `scontrol requeue` from the Prolog ends the launch before any task starts, drains nothing, and a
start time set right after it is kept, with the job's priority.
"""

from __future__ import annotations

from contextlib import suppress

from slurm_plugin.core.comments.admin_comment import Note, read_signed, signed_note
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.ledger.requeued_jobs import Lack, RequeuedJob, begin_waiting
from slurm_plugin.core.logs.events import EventKind, LogEvent
from slurm_plugin.core.records.node import Demand, Placement
from slurm_plugin.core.records.queue_position import QueuePosition
from slurm_plugin.core.units import from_mib
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.control import JobChange, SlurmControl, Standing
from slurm_plugin.slurm.node.hook_env import HookJob

FIRST_DELAY_S = 10
LONGEST_DELAY_S = 160
"""Longest delay until the next try, doubled each time, if no Epilog of this node wakes the job: see epilog/wake.py."""

MOST_FOR_FAULTS = 3
"""Maximum requeues caused by an internal error; after that the job starts without RAD."""


def may_requeue(job: HookJob) -> bool:
    """Return whether an internal error may still delay this job."""
    return job.restart < MOST_FOR_FAULTS


def lack_of(placement: Placement, demand: Demand, settings: PartitionConfig, *, now_s: float) -> Lack | None:
    """Return what a requeued job lacks because of others; None if no job exceeds its booking.

    Args:
        placement: Why it is requeued.
        demand: What it books.
        settings: Its partition's settings: next to a job that exceeds its booking, a margin is required, too.
        now_s: Seconds since the epoch.
    """
    if not placement.overrun_gpus or demand.booked_bytes is None:
        return None
    need_bytes = demand.booked_bytes + from_mib(settings.margin_mib)
    return Lack(since_s=now_s, need_bytes=need_bytes, gpus=placement.overrun_gpus)


def requeue(node: Node, job: HookJob, reason: str, *, refuse: bool, lack: Lack | None = None) -> LogEvent:
    """Requeue the job and return the outcome.

    Args:
        node: This node.
        job: The job.
        reason: Why.
        refuse: Whether the job must not start here even if Slurm does not requeue it (a job that is not batch, or
            one submitted with --no-requeue): it would break another job's exclusive GPU or booked memory.
        lack: What it lacks because of others, for the guard; None if no job exceeds its booking.
    """
    if refuse:
        with suppress(OSError):  # requeued all the same
            file = node.job_file(job.job_id)
            file.refuse(reason, boot_id=node.store.boot_id, now_s=node.clock.monotonic_s())
    slurm, key = node.slurm(), node.key()
    seen = _seen(slurm, job.job_id)
    comment = "" if seen is None else seen.admin_comment
    before = read_signed(comment, job_id=job.job_id, user_id=job.user_id, key=key)
    restart = job.restart + 1
    try:
        slurm.requeue(job.job_id)
    except SlurmError as exc:
        return LogEvent(kind=EventKind.NOT_REQUEUED, detail=f"{reason}; {exc}")
    try:
        least_s = slurm.requeue_delay_s()
        delay_s = max(least_s, min(LONGEST_DELAY_S, FIRST_DELAY_S << min(job.restart, 10)))
        note = Note(
            event="requeued",
            start_in_s=delay_s,
            restart=restart,
            position=None if seen is None else position_of(seen, before, restart=job.restart),
            server_ends=None if before is None else before.server_ends,
            detail=reason,
        )
        text = signed_note(note, job_id=job.job_id, user_id=job.user_id, key=key)
        slurm.update(job.job_id, JobChange(start_in_s=delay_s, admin_comment=text))
    except SlurmError as exc:
        return LogEvent(kind=EventKind.REQUEUED, detail=f"{reason}; with Slurm's default delay: {exc}")
    earliest_s = node.clock.now_s() + least_s
    waiting = RequeuedJob(job_id=job.job_id, earliest_s=earliest_s, restart=restart, lack=lack)
    begin_waiting(node.run, waiting)
    return LogEvent(kind=EventKind.REQUEUED, detail=reason, facts={"start_in_s": delay_s})


def _seen(slurm: SlurmControl, job_id: int) -> Standing | None:
    try:
        return slurm.standing(job_id)
    except SlurmError:
        return None


def position_of(seen: Standing, before: Note | None, *, restart: int) -> QueuePosition | None:
    """Return the queue position of a job that is being requeued; None if Slurm does not report it.

    A job that was requeued before keeps the position that it had then.

    Args:
        seen: The job while it runs: once it is requeued and its Epilog is over, Slurm gives it new times.
        before: Its signed note; None if there is none.
        restart: Restart count of the run that is requeued.
    """
    if seen.state == "PENDING" or seen.priority + seen.nice < 0:
        return None
    if before is not None and before.position is not None and before.restart == restart:
        return before.position
    return QueuePosition(
        submitted_s=seen.submitted_s,
        accrues_s=seen.accrues_s,
        priority=seen.priority + seen.nice,
        nice=seen.nice,
    )
