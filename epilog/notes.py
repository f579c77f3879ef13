"""Report to the user of a job and to Slurm's accounts: why the job ended, and what it used."""

from __future__ import annotations

from pathlib import Path

from epilog.run_record import activity_of
from slurm_plugin.core.comments.admin_comment import Note, signed_note
from slurm_plugin.core.records.node import Outcome
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import counted
from slurm_plugin.monitor.window import JobUsage
from slurm_plugin.slurm.node.hook_env import HookJob


def reason_note(job: HookJob, booking: Booking, outcome: Outcome) -> Note:
    """Return the note why a job ended, for one whose note is of an earlier run, or that was stopped.

    Args:
        job: The job, as slurmd passes it to its hooks.
        booking: What was booked for it.
        outcome: How it ended.
    """
    stopped = outcome.kind in ("overrun", "idle")
    detail = f"stopped: {outcome.evidence}" if stopped else outcome.evidence or outcome.kind
    again = "not requeued again: " if booking.recoveries else ""
    return Note(
        event="failed",
        restart=job.restart,
        estimate_bytes=booking.estimate_bytes,
        peak_bytes=outcome.peak_bytes,
        detail=again + detail,
    )


def peak_note(job: HookJob, booking: Booking, outcome: Outcome, usage: JobUsage | None) -> Note | None:
    """Return the note of a job's estimate and usage, which sacct shows; None if its peak is not known.

    Args:
        job: The job, as slurmd passes it to its hooks.
        booking: What was booked for it.
        outcome: How it ended.
        usage: What the monitor saw of it; None if nothing.
    """
    if outcome.peak_bytes is None:
        return None
    times, ok = booking.recoveries, outcome.kind == "ok"
    return Note(
        event="ended" if ok else "failed",
        restart=job.restart,
        estimate_bytes=booking.estimate_bytes,
        peak_bytes=outcome.peak_bytes,
        smact=activity_of(usage) if ok else None,
        ran_s=int(usage.last_s - usage.first_s) if usage is not None and ok else None,
        detail=f"recovered from running out of GPU memory, {counted(times, 'time')}" if times else "",
    )


def write_note(job: HookJob, note: Note, *, slurm_conf: Path | None, log: Path, key: bytes) -> None:
    """Write a note into the job's AdminComment.

    Args:
        job: The job, as slurmd passes it to its hooks.
        note: The note.
        slurm_conf: SLURM_CONF of this node's slurmd; None leaves it to Slurm.
        log: RAD's log folder; sacctmgr's output goes to accounting.log, and sacctmgr is not waited for.
        key: The cluster's key.

    Raises:
        SlurmError: sacctmgr could not be started.
    """
    from slurm_plugin.slurm.queries.accounting import write_admin_comment

    text = signed_note(note, job_id=job.job_id, user_id=job.user_id, key=key)
    write_admin_comment(job.job_id, text, slurm_conf=slurm_conf, log_path=log / "accounting.log")
