"""Start the next attempt of a job that ran out of GPU memory, under the same job id.

Tried on 22.05.8: while the job is COMPLETING, `scontrol requeue`, then one `scontrol update` with everything. A start
time a few seconds ahead survives the end of completion; one in the past or "now" is replaced by Slurm's own delay of
two minutes. radd, which gets the update, clears that.
"""

from __future__ import annotations

from dataclasses import replace

from slurm_plugin.core.booking.available_gres import AvailableGres
from slurm_plugin.core.booking.gres_text import parse_gres
from slurm_plugin.core.comments.admin_comment import Fault, Note, read_signed, signed_note
from slurm_plugin.core.comments.signed_comment import (
    read_signed_booking,
    signed_booking,
    with_signed_booking,
)
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.logs.events import Event, EventKind
from slurm_plugin.core.records.node import Outcome, Recovery
from slurm_plugin.core.units import shards_for
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
) -> Event:
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
    if view is None or view.user_id != job.user_id or not view.batch or not view.requeue:
        return Event(kind=EventKind.NOT_RUN_AGAIN, detail="it may not be requeued")
    if view.restarts >= MOST_RESTARTS:
        detail = f"it has been restarted {view.restarts} times"
        return Event(kind=EventKind.NOT_RUN_AGAIN, detail=detail)
    version = control.version()
    available = AvailableGres.of(
        settings, parse_gres(view.gres), whole_as_gpu=whole_as_gpu(settings, version)
    )
    if available.type and outcome.least_bytes > available.partition.capacity_bytes:
        detail = f"it needs more than a GPU of its requested type, {available.type}, has"
        return Event(kind=EventKind.NOT_RUN_AGAIN, detail=detail)
    if view.restarts == restart and view.state in _ENDING:
        control.requeue(job.job_id)
    elif view.restarts != restart + 1 or view.state not in _WAITING:
        detail = f"it is {view.state} after {view.restarts} restarts by now"
        return Event(kind=EventKind.NOT_RUN_AGAIN, detail=detail)
    isolated = _isolated(view, outcome, key)
    if isolated is not None:
        recovery = replace(recovery, reason=f"{recovery.reason} for a server of its own")
    delay_s = control.requeue_delay_s()
    change = _change(view, recovery, outcome, available, delay_s, key, restart=restart + 1)
    if isolated is not None:
        change = replace(change, comment=isolated)
    try:
        control.update(job.job_id, change)
    except SlurmError as exc:
        if change.gres is None and change.per_task is None:
            raise
        # Slurm applies all of an update or nothing. Without the count in its comment a job would be rerun forever.
        control.update(job.job_id, replace(change, gres=None, per_task=None))
        return Event(
            kind=EventKind.RUNS_AGAIN,
            detail=f"{recovery.reason}; but its request could not be changed: {exc}",
        )
    return Event(kind=EventKind.RUNS_AGAIN, detail=recovery.reason)


def _isolated(view: JobView, outcome: Outcome, key: bytes) -> str | None:
    """Return the comment of a job that gets a server of its own, since its last one ended; None for other jobs.

    If this job caused that, it does so again alone, and is known.
    """
    booking = (
        read_signed_booking(view.comment, user_id=view.user_id, key=key) if outcome.server_ends else None
    )
    if booking is None:
        return None
    signed = signed_booking(replace(booking, own_server=True), user_id=view.user_id, key=key)
    return with_signed_booking(view.comment, signed)


def _change(
    view: JobView,
    recovery: Recovery,
    outcome: Outcome,
    available: AvailableGres,
    delay_s: int,
    key: bytes,
    *,
    restart: int,
) -> JobChange:
    before = read_signed(view.admin_comment, job_id=view.job_id, user_id=view.user_id, key=key)
    victim = outcome.kind == "victim"
    fault: Fault = "victim" if victim else "estimate"
    note = Note(
        event="recovered",
        start_in_s=delay_s,
        restart=restart,
        estimate_bytes=recovery.booking.estimate_bytes,
        peak_bytes=outcome.peak_bytes,
        fault=fault if recovery.boost_priority else None,
        server_ends=outcome.server_ends or (None if before is None else before.server_ends),
        detail=f"{recovery.reason}: {outcome.evidence}",
    )
    text = signed_note(note, job_id=view.job_id, user_id=view.user_id, key=key)
    start_in_s = max(START_IN_S, delay_s)
    if outcome.kind in ("victim", "idle"):
        return JobChange(admin_comment=text, start_in_s=start_in_s)  # rerun unchanged
    booking = replace(recovery.booking, changed=True)  # Slurm may take the stamp and refuse the request
    by_task = booking.by_task is not None
    if by_task:
        available = replace(
            available, whole_as_gpu=False
        )  # Slurm refuses a job that requests shards and GPUs
    shards = 0
    if booking.memory_bytes is not None:
        # Its request beyond its memory covered its compute, and still does.
        each = booking.shards // booking.gpus
        shards = max(shards_for(booking.memory_bytes, available.partition.shard_bytes), each)
    if shards >= available.partition.shards:  # its GPU type has no larger share
        booking = replace(booking, kind="whole", memory_bytes=None)
    share = booking.memory_bytes is not None
    gres = available.share(shards) if share else available.whole(outcome.least_bytes, rerun=True)
    return JobChange(
        gres=None if by_task else gres,
        per_task=_per_task(view, gres) if by_task else None,
        comment=with_signed_booking(view.comment, signed_booking(booking, user_id=view.user_id, key=key)),
        admin_comment=text,
        start_in_s=start_in_s,
    )


def _per_task(view: JobView, gres: str) -> str:
    """Return the request of each task with other shards and unchanged CPUs."""
    cpus = [part for part in view.gres.split(",") if part.startswith("cpu")]
    return ",".join([*cpus, f"gres/{gres}"])
