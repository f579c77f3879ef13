"""Start the next attempt of a job that ran out of GPU memory, under the same job id.

Tried on 22.05.8: while the job is COMPLETING, `scontrol requeue`, then one `scontrol update` with everything. A start
time a few seconds ahead survives the end of completion; one in the past or "now" is replaced by Slurm's own delay of
two minutes. radd, which gets the update, clears that.
"""

from __future__ import annotations

from dataclasses import replace

from slurm_plugin.core.booking.available_gres import AvailableGres
from slurm_plugin.core.booking.gres_text import parse_gres
from slurm_plugin.core.comments.admin_comment import Note, RecoveryCause, read_signed, signed_note
from slurm_plugin.core.comments.signed_comment import (
    read_signed_booking,
    signed_booking,
    with_signed_booking,
)
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.logs.events import EventKind, LogEvent
from slurm_plugin.core.records.node import Outcome, Recovery
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import counted, shards_for
from slurm_plugin.slurm.control import JobChange, JobView, SlurmControl
from slurm_plugin.slurm.node.hook_env import HookJob
from slurm_plugin.slurm.versions import whole_as_gpu

START_IN_S = 5
"""Longer than an Epilog takes, so that it is still ahead when the job has completed."""

MOST_RESTARTS = 20
"""RAD's requeues count too; beyond this the problem is one that another run does not fix."""

_ENDING = ("COMPLETING", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY")
_WAITING = ("COMPLETING", "PENDING")


def requeue_next_attempt(
    job: HookJob,
    recovery: Recovery,
    outcome: Outcome,
    settings: PartitionConfig,
    control: SlurmControl,
    *,
    restart: int,
    key: bytes,
) -> LogEvent:
    """Requeue the job with its next booking and return the outcome; repeating it changes nothing.

    Args:
        job: The job that ended.
        recovery: Its next attempt.
        outcome: Why it ended.
        settings: The partition's settings.
        control: Slurm.
        restart: Restart count of the run that ended.
        key: The cluster's key.

    Raises:
        SlurmError: Slurm refused or did not answer.
    """
    view = control.job(job.job_id)
    never = _never_again(view, job)
    if view is None or never:
        return LogEvent(kind=EventKind.NOT_RUN_AGAIN, detail=never)
    available = AvailableGres.of(
        settings, parse_gres(view.gres), whole_as_gpu=whole_as_gpu(settings, control.version())
    )
    if why_not := _too_small(available, outcome) or _too_late(view, restart):
        return LogEvent(kind=EventKind.NOT_RUN_AGAIN, detail=why_not)
    if view.restarts == restart:
        control.requeue(job.job_id)
    isolated = _isolated(view, outcome, key)
    if isolated is not None:
        recovery = replace(recovery, reason=f"{recovery.reason} for a server of its own")
    note = _note(view, recovery, outcome, control.requeue_delay_s(), restart=restart + 1, key=key)
    change = JobChange(
        admin_comment=signed_note(note, job_id=view.job_id, user_id=view.user_id, key=key),
        start_in_s=max(START_IN_S, note.start_in_s or 0),
        comment=isolated,
    )
    if outcome.kind not in ("victim", "idle"):  # these are rerun unchanged
        change = _with_request(change, view, recovery.booking, outcome, available, key)
    return _update(control, job.job_id, change, recovery.reason)


def _never_again(view: JobView | None, job: HookJob) -> str:
    """Return why no other run of a job is started, whatever its request; "" if one may be."""
    if view is None or view.user_id != job.user_id or not view.batch or not view.requeue:
        return "it may not be requeued"
    if view.restarts >= MOST_RESTARTS:
        return f"it has been restarted {counted(view.restarts, 'time')}"
    return ""


def _too_small(available: AvailableGres, outcome: Outcome) -> str:
    """Return why no GPU of the type that a job requests is large enough; "" if one is, or it requests no type."""
    if not available.type or outcome.least_bytes <= available.partition.capacity_bytes:
        return ""
    return f"it needs more than a GPU of its requested type, {available.type}, has"


def _too_late(view: JobView, restart: int) -> str:
    """Return why the run that ended is no longer the last one; "" if it is, or this hook requeued it before."""
    ends = view.restarts == restart and view.state in _ENDING
    is_requeued = view.restarts == restart + 1 and view.state in _WAITING
    return "" if ends or is_requeued else f"it is {view.state} after {view.restarts} restarts by now"


def _update(control: SlurmControl, job_id: int, change: JobChange, reason: str) -> LogEvent:
    """Change the requeued job, without its request if Slurm refuses that, and return the outcome."""
    try:
        control.update(job_id, change)
    except SlurmError as exc:
        if change.gres is None and change.per_task is None:
            raise
        # Slurm applies all of an update or nothing. Without the count in its comment a job would be rerun forever.
        control.update(job_id, replace(change, gres=None, per_task=None))
        reason = f"{reason}; but its request could not be changed: {exc}"
    return LogEvent(kind=EventKind.RUNS_AGAIN, detail=reason)


def _isolated(view: JobView, outcome: Outcome, key: bytes) -> str | None:
    """Return the comment of a job that gets a server of its own, since its last one ended; None for other jobs.

    If this job caused that, it does so again alone, and is known.
    """
    if not outcome.server_ends:
        return None
    booking = read_signed_booking(view.comment, user_id=view.user_id, key=key)
    if booking is None:
        return None
    signed = signed_booking(replace(booking, own_server=True), user_id=view.user_id, key=key)
    return with_signed_booking(view.comment, signed)


def _note(
    view: JobView, recovery: Recovery, outcome: Outcome, delay_s: int, *, restart: int, key: bytes
) -> Note:
    """Return the note for radd and for display; reruns because of an MPS server are counted on."""
    before = read_signed(view.admin_comment, job_id=view.job_id, user_id=view.user_id, key=key)
    fault: RecoveryCause = "victim" if outcome.kind == "victim" else "estimate"
    return Note(
        event="recovered",
        start_in_s=delay_s,
        restart=restart,
        estimate_bytes=recovery.booking.estimate_bytes,
        peak_bytes=outcome.peak_bytes,
        fault=fault if recovery.boost_priority else None,
        server_ends=outcome.server_ends or (None if before is None else before.server_ends),
        detail=f"{recovery.reason}: {outcome.evidence}",
    )


def _with_request(
    change: JobChange,
    view: JobView,
    booking: Booking,
    outcome: Outcome,
    available: AvailableGres,
    key: bytes,
) -> JobChange:
    """Return a change with the request of the next booking, and that booking in the comment."""
    by_task = booking.by_task is not None
    if by_task:  # Slurm refuses a job that requests shards and GPUs
        available = replace(available, whole_as_gpu=False)
    shards = _shards(booking, available.partition)
    booking = replace(booking, changed=True)  # Slurm may take the signed booking and refuse the request
    if shards >= available.partition.shards:  # its GPU type has no larger share
        booking = replace(booking, kind="whole", memory_bytes=None)
    is_share = booking.memory_bytes is not None
    gres = available.share(shards) if is_share else available.whole(outcome.least_bytes, rerun=True)
    return replace(
        change,
        gres=None if by_task else gres,
        per_task=_per_task(view, gres) if by_task else None,
        comment=with_signed_booking(view.comment, signed_booking(booking, user_id=view.user_id, key=key)),
    )


def _shards(booking: Booking, partition: PartitionConfig) -> int:
    """Return the shards of each GPU; 0 without a size. What a request had beyond its memory is for its compute."""
    if booking.memory_bytes is None:
        return 0
    return max(shards_for(booking.memory_bytes, partition.shard_bytes), booking.shards // booking.gpus)


def _per_task(view: JobView, gres: str) -> str:
    """Return the request of each task with other shards and unchanged CPUs."""
    cpus = [part for part in view.gres.split(",") if part.startswith("cpu")]
    return ",".join([*cpus, f"gres/{gres}"])
