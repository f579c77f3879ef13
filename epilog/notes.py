"""Report to the user of a job and to Slurm's accounts: why the job ended, and what it used."""

from __future__ import annotations

from pathlib import Path

from epilog.run_record import activity_of
from slurm_plugin.core.comments.admin_comment import Event, Note, signed_note
from slurm_plugin.core.records.node import Outcome
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.monitor.window import JobUsage
from slurm_plugin.slurm.node.hook_env import HookJob


def note_reason(
    job: HookJob, booking: Booking, outcome: Outcome, *, slurm_conf: Path | None, log: Path, key: bytes
) -> None:
    """Write into the job's AdminComment why it ended, where the note there is of an earlier run, or it was stopped.

    Args:
        job: The job, as slurmd passes it to its hooks.
        booking: What was booked for it.
        outcome: How it ended.
        slurm_conf: SLURM_CONF of this node's slurmd; None leaves it to Slurm.
        log: RAD's log folder; sacctmgr's output goes to accounting.log, and sacctmgr is not waited for.
        key: The cluster's key.

    Raises:
        SlurmError: sacctmgr could not be started.
    """
    from slurm_plugin.slurm.queries.accounting import write_admin_comment

    stopped = outcome.kind in ("overrun", "idle")
    detail = f"stopped: {outcome.evidence}" if stopped else outcome.evidence or outcome.kind
    again = "not requeued again: " if booking.recoveries else ""
    note = Note(
        event="failed",
        restart=job.restart,
        estimate_bytes=booking.estimate_bytes,
        peak_bytes=outcome.peak_bytes,
        detail=again + detail,
    )
    text = signed_note(note, job_id=job.job_id, user_id=job.user_id, key=key)
    write_admin_comment(job.job_id, text, slurm_conf=slurm_conf, log_path=log / "accounting.log")


def note_peak(
    job: HookJob,
    booking: Booking,
    outcome: Outcome,
    *,
    usage: JobUsage | None = None,
    slurm_conf: Path | None,
    log: Path,
    key: bytes,
) -> None:
    """Write estimate and usage into the job's AdminComment, where sacct shows them.

    Args:
        job: The job, as slurmd passes it to its hooks.
        booking: What was booked for it.
        outcome: How it ended.
        usage: What the monitor saw of it; None if nothing.
        slurm_conf: SLURM_CONF of this node's slurmd; None leaves it to Slurm.
        log: RAD's log folder; sacctmgr's output goes to accounting.log, and sacctmgr is not waited for.
        key: The cluster's key.

    Raises:
        SlurmError: sacctmgr could not be started.
    """
    if outcome.peak_bytes is None:
        return
    from slurm_plugin.slurm.queries.accounting import write_admin_comment

    event: Event = "ended" if outcome.kind == "ok" else "failed"
    times = booking.recoveries
    note = Note(
        event=event,
        restart=job.restart,
        estimate_bytes=booking.estimate_bytes,
        peak_bytes=outcome.peak_bytes,
        smact=activity_of(usage) if outcome.kind == "ok" else None,
        ran_s=int(usage.last_s - usage.first_s) if usage is not None and outcome.kind == "ok" else None,
        detail=f"recovered from running out of GPU memory, {times} time{'s' * (times > 1)}" if times else "",
    )
    text = signed_note(note, job_id=job.job_id, user_id=job.user_id, key=key)
    write_admin_comment(job.job_id, text, slurm_conf=slurm_conf, log_path=log / "accounting.log")
