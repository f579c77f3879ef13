"""Release a job's GPUs, report how it ended, and rerun it where that helps.

Runs in the child that `epilog/__main__.py` starts, and may run twice for one job. The job's allocation is released
before anything else is tried.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from epilog.ended import is_reported, note_ended
from epilog.evidence import read_evidence
from epilog.notes import peak_note, reason_note, write_note
from epilog.outcome import ending_of, judge
from epilog.quarantine import record_fault
from epilog.run_record import keep_run, run_of
from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.comments.admin_comment import Note
from slurm_plugin.core.comments.signed_comment import read_key, read_signed_booking
from slurm_plugin.core.config.last_good import InForce, config_in_force
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.config.timed_read import TimelyFile
from slurm_plugin.core.errors import ConfigError, RadError, SlurmError
from slurm_plugin.core.exits import Exit
from slurm_plugin.core.history.runs import Run
from slurm_plugin.core.ledger.job_file import JobFile
from slurm_plugin.core.ledger.requeued_jobs import waiting_jobs
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.core.records.node import Allocation, Outcome
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.recovery.classify import as_allocated, next_attempt, unsigned
from slurm_plugin.monitor.window import JobUsage, forget_job, read_job
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.files.conf_files import find_slurm_conf, has_slurmdbd
from slurm_plugin.slurm.node.hook_env import HookJob
from slurm_plugin.slurm.node.output_before import forget as forget_outputs

LOCK_S = 2.0
RESCUE_LOCK_S = 0.5
"""Parts of the hook's time; each normally takes milliseconds."""


def work(rad_toml: TimelyFile, *, started_s: float) -> int:
    """Release the job's allocation, then report how it ended and rerun it where that helps.

    Args:
        rad_toml: The configuration file, which is being read.
        started_s: When the hook was started, on the monotonic clock.

    Returns:
        The hook's exit status.
    """
    job = HookJob.from_env(os.environ)
    found = _settings(rad_toml)
    if not _concerns(job, found.config):
        return Exit.OK
    node = Node.here(found.config, os.environ)
    if node.config.mode == "off" and not node.run.is_dir():
        return Exit.OK  # nothing was begun here
    log = node.log("epilog", job, started_s=started_s)
    silent = _is_silent(job, node)
    if _continues(job, node, log, ask=True):
        return Exit.OK
    _end_record(job, node, reported=silent or not job.gpu_indices)  # without a Prolog nothing was allocated
    allocation = _release(job, node, log, LOCK_S)
    if job.gpu_indices and node.manages(job.partition):
        if found.trouble:
            log.write(EventKind.LAST_GOOD_SETTINGS, found.trouble)
        _end_managed(job, node, allocation, log, report=not silent)
    else:
        _end_unmanaged(job, node, allocation, log)
    return Exit.OK


def _is_silent(job: HookJob, node: Node) -> bool:
    """Return whether a run needs no report: it did not start under RAD, or it was reported before."""
    file = node.job_file(job.job_id)
    return file.refusal() is not None or file.unplaced() or is_reported(job, node)


def _end_managed(
    job: HookJob, node: Node, allocation: Allocation | None, log: HookLog, *, report: bool
) -> None:
    """Report how the run ended and rerun it where that helps; remove what it left; let the next job try."""
    try:
        if report and node.config.mode != "off":
            _report(job, node, allocation, log)
        note_ended(job, node, reported=True)
    except (RadError, OSError) as exc:
        log.write(EventKind.NOT_REPORTED, str(exc))
    finally:
        _stop_mps(node.run, job, node.clock, log)  # after the report, which reads its log
        forget_job(node.run, job.job_id)
        forget_outputs(node.run, job.job_id)
    if node.config.mode == "enforce" and allocation is not None:
        _wake(node, log)
    log.write(EventKind.END)


def _end_unmanaged(job: HookJob, node: Node, allocation: Allocation | None, log: HookLog) -> None:
    """Remove what a job left that has no GPU, or whose partition rad.toml does not manage (any more)."""
    if allocation is not None and allocation.managed:  # its partition was changed while it ran
        _stop_mps(node.run, job, node.clock, log)
    forget_job(node.run, job.job_id)


def _wake(node: Node, log: HookLog) -> None:
    """Let the job that this node requeued first try again now."""
    waiting = waiting_jobs(node.run)
    if waiting:
        from epilog.wake import wake  # an ordinary job ends without a Slurm query

        log.write_event(wake(waiting, node.run, node.slurm(), node.clock, key=node.key()))


def rescue(rad_toml: TimelyFile, why: str, *, started_s: float) -> int:
    """Release the job's allocation and do nothing else: the work did not end within its time limit.

    Args:
        rad_toml: The configuration file, which is being read.
        why: Why it did not.
        started_s: When the hook was started, on the monotonic clock.

    Returns:
        The hook's exit status.
    """
    job = HookJob.from_env(os.environ)
    config = _settings(rad_toml).config
    if not _concerns(job, config):
        return Exit.OK
    node = Node.here(config, os.environ, for_release=True)
    log = node.log("epilog", job, started_s=started_s)
    if _continues(job, node, log, ask=False):
        return Exit.OK
    _release(job, node, log, RESCUE_LOCK_S)  # first: the record may be what did not end
    _end_record(job, node, reported=True)
    note_ended(job, node, reported=True)
    forget_job(node.run, job.job_id)
    forget_outputs(node.run, job.job_id)
    log.write(EventKind.OUT_OF_TIME, why)
    _stop_mps(node.run, job, node.clock, log)
    log.write(EventKind.END)
    return Exit.OK


def _settings(rad_toml: TimelyFile) -> InForce:
    """Return the settings, or the defaults if they cannot be read: a release must not depend on them."""
    try:
        return config_in_force(rad_toml)
    except ConfigError as exc:
        return InForce(config=Config(mode="off"), trouble=str(exc))


def _concerns(job: HookJob, config: Config) -> bool:
    """Return whether the ending job has a GPU or a booking, or its id an allocation of an earlier job.

    slurmctld ends a run that it does not know with the data of a later job of this id, which has no GPUs yet.
    """
    return bool(job.gpu_indices or job.comment) or JobFile(Path(config.paths.run), job.job_id).exists()


def _end_record(job: HookJob, node: Node, *, reported: bool) -> None:
    """Record that the run is over, then remove its Prolog's file: no task finds neither."""
    file = node.job_file(job.job_id)
    placed = file.read(boot_id=node.store.boot_id).allocation
    if placed is None or placed.restart <= job.restart or not job.gpu_indices:
        note_ended(job, node, reported=reported, placed=placed)
        file.remove()


def _release(job: HookJob, node: Node, log: HookLog, lock_s: float) -> Allocation | None:
    """Release the job's allocation and return it; if the lock is not free in time, leave a note instead."""
    restart = job.restart
    if not job.gpu_indices:
        allocation = node.store.read().ledger.of_job(job.job_id)
        if allocation is None:
            return None
        restart = allocation.restart  # this Epilog's is a later job's
    try:
        return node.store.release(job.job_id, restart=restart, deadline=Deadline(node.clock, lock_s))
    except RadError as exc:
        log.write(EventKind.NOT_RELEASED, str(exc))
        return None


def _continues(job: HookJob, node: Node, log: HookLog, *, ask: bool) -> bool:
    """Return whether a later run of the job has begun here and has the allocation, MPS, monitor record and output.

    Slurm reruns a job on a node that it took for lost, and slurmd still ends the run before. The restart count of that
    Epilog may be the later run's: a requeue raises it first. Without GPUs the Epilog has the data of another job.
    """
    allocation = node.store.read().ledger.of_job(job.job_id)
    if allocation is None:
        return False
    if not job.gpu_indices or allocation.restart <= job.restart:
        if job.gpu_indices and (allocation.restart < job.restart or not job.restart):
            return False  # an ordinary job ends without reading /proc
        from epilog.continues import goes_on

        if not goes_on(allocation, node, ask=ask):
            return False
    log.write(EventKind.NOT_REPORTED, "an earlier run ended late; the job already runs again here")
    return True


def _stop_mps(run: Path, job: HookJob, clock: Clock, log: HookLog) -> None:
    real, simulated = (run / "mps").is_dir(), (run / "simulated-mps").is_dir()
    if not real and not simulated:
        return
    from slurm_plugin.mps.servers import Mps
    from slurm_plugin.mps.simulated import SimulatedMps

    for found, kind in ((real, Mps), (simulated, SimulatedMps)):
        try:
            if found:
                kind(run, clock=clock).release(job.job_id)
        except RadError as exc:
            log.write(EventKind.NOT_RELEASED, str(exc))


def _report(job: HookJob, node: Node, allocation: Allocation | None, log: HookLog) -> None:
    """Report how the job ended and rerun it where that helps."""
    usage = read_job(node.run, job.job_id)
    outcome = judge(read_evidence(job, node, allocation=allocation, usage=usage, log=log))
    settings = node.config.partition(job.partition)
    quarantine = record_fault(job, node, allocation, outcome, settings)
    if quarantine:
        outcome = replace(outcome, evidence=quarantine)
    log.write_event(ending_of(outcome))
    try:
        key = read_key(Path(node.config.paths.key))
    except ConfigError as exc:
        log.write(EventKind.NO_RECOVERY, str(exc))
        return
    booking = read_signed_booking(job.comment, user_id=job.user_id, key=key) or unsigned(allocation, outcome)
    if booking is None or settings is None:
        return
    booking = as_allocated(booking, allocation)
    run = run_of(job, booking, outcome, usage, now_s=node.clock.now_s())
    recovery = next_attempt(booking, outcome, settings) if node.config.features.recovery else None
    try:
        if recovery is not None and node.config.mode == "observe":
            log.write(EventKind.WOULD_RUN_AGAIN, recovery.reason)
        elif recovery is not None:
            from epilog.requeue import requeue_next_attempt  # an ordinary job ends without a Slurm query

            ended = allocation.restart if allocation else job.restart
            log.write_event(
                requeue_next_attempt(job, recovery, outcome, settings, node.slurm(), restart=ended, key=key)
            )
        elif node.config.mode == "enforce":
            _note_in_slurm(job, node, booking, outcome, usage, key, quarantined=bool(quarantine))
    except SlurmError as exc:
        log.write(EventKind.NOT_REPORTED, str(exc))
    _keep(run, node, log)  # first the rerun, then the record: the disk may be full


def _keep(run: Run, node: Node, log: HookLog) -> None:
    """Add the run to the history, where that is on."""
    if node.config.features.history:
        try:
            keep_run(node.config, run)
        except OSError as exc:
            log.write(EventKind.NOT_REPORTED, f"not remembered: {exc}")


def _note_in_slurm(
    job: HookJob,
    node: Node,
    booking: Booking,
    outcome: Outcome,
    usage: JobUsage | None,
    key: bytes,
    *,
    quarantined: bool,
) -> None:
    """Write into the job's AdminComment why it was stopped or is under quarantine, or its usage for accounts."""
    slurm_conf = find_slurm_conf(node.config.paths.slurm_conf, os.environ)
    if not has_slurmdbd(slurm_conf):  # slurmctld takes no notes on a job that is completing
        return
    # AdminComment still announces the rerun, which has ended now.
    rerun_ended_badly = booking.recoveries > 0 and outcome.kind not in ("ok", "cancelled")
    if quarantined or rerun_ended_badly or outcome.kind in ("overrun", "idle"):
        note: Note | None = reason_note(job, booking, outcome)
    else:
        note = peak_note(job, booking, outcome, usage) if node.config.features.accounting else None
    if note is not None:
        write_note(job, note, slurm_conf=slurm_conf, log=Path(node.config.paths.log), key=key)
