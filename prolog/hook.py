"""Place a job on this node's GPUs, or requeue it.

Runs in the child that `prolog/__main__.py` starts. A job that must not start here is requeued through the controller.
After an internal error the job runs as Slurm would have run it.
"""

from __future__ import annotations

import os
from contextlib import suppress

from prolog.attempts import AttemptResult, place_job
from prolog.demand import SourcedDemand, signed_booking, wanted_by
from prolog.environment import environment_of, mps_of
from prolog.job_server import note_quarantine, with_server
from prolog.no_gpus import why_no_start
from prolog.place import SOON_S, Placed, context_of
from slurm_plugin.core.booking.step_environment import task_variables
from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.config.last_good import config_in_force
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.config.timed_read import TimelyFile
from slurm_plugin.core.errors import LedgerError, RadError
from slurm_plugin.core.exits import Exit
from slurm_plugin.core.ledger.ended_runs import EndedRuns
from slurm_plugin.core.ledger.requeued_jobs import Lack, end_waiting
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.hook_env import HookJob
from slurm_plugin.slurm.node.output_files import may_hold_old_text

RELEASE_S = 0.5
"""For the lock, once the hook has failed already."""


def work(rad_toml: TimelyFile, *, started_s: float) -> int:
    """Do what the job's partition requires; for most jobs on most clusters that is nothing.

    Args:
        rad_toml: The configuration file, which is being read.
        started_s: When the hook was started, on the monotonic clock.

    Returns:
        The hook's exit status.
    """
    job = HookJob.from_env(os.environ)
    found = config_in_force(rad_toml)
    node = Node.here(found.config, os.environ)
    EndedRuns(node.run).forget(job.job_id)
    settings = _settings(node, job)
    if settings is None:
        _unmanaged(node, job)
    elif job.gpu_indices:
        log = node.log("prolog", job, started_s=started_s)
        if found.trouble:
            log.write(EventKind.LAST_GOOD_SETTINGS, found.trouble)
        _managed(node, job, settings, log)
    elif node.config.mode == "enforce" and (reason := why_no_start(node, job)) is not None:
        log = node.log("prolog", job, started_s=started_s)
        _requeue(node, job, log, reason, refuse=True)
        log.write(EventKind.END)
    return Exit.OK


def _settings(node: Node, job: HookJob) -> PartitionConfig | None:
    """Return how a job is to be placed; None if it runs without RAD."""
    on = node.config.mode != "off" and node.config.features.placement and node.manages(job.partition)
    return node.config.partition(job.partition) if on else None


def _unmanaged(node: Node, job: HookJob) -> None:
    """Let a job run without RAD."""
    _mark(node, job)
    if job.gpu_indices and node.config.places:
        from prolog.unmanaged import note

        note(node, job)


def _mark(node: Node, job: HookJob) -> None:
    """Inform TaskProlog of a job that is not placed but was changed by RAD at submission."""
    booking = signed_booking(job, node.config)
    if booking is not None:
        task_values = task_variables(booking.by_task)
        variables = {"RAD_JOB": str(job.job_id), **task_values} if task_values else {}
        node.job_file(job.job_id).mark(variables, boot_id=node.store.boot_id, now_s=node.clock.monotonic_s())


def _managed(node: Node, job: HookJob, settings: PartitionConfig, log: HookLog) -> None:
    """Start the job's run on this node; an internal error leaves the job unchanged, or requeues it."""
    try:
        _start(node, job, settings, log)
    except LedgerError as exc:
        _give_up(node, job, log, str(exc))
        _requeue_unplaced(node, job, log, str(exc))
    except Exception as exc:  # noqa: BLE001 - a bug in RAD must not keep the job from running
        _give_up(node, job, log, str(exc) if isinstance(exc, RadError | OSError) else repr(exc))
    log.write(EventKind.END)


def rescue(rad_toml: TimelyFile, why: str, *, started_s: float) -> int:
    """Undo what was begun: the work did not end within its time limit.

    Args:
        rad_toml: The configuration file, which is being read.
        why: Why it did not.
        started_s: When the hook was started, on the monotonic clock.

    Returns:
        The hook's exit status.
    """
    job = HookJob.from_env(os.environ)
    config = config_in_force(rad_toml).config
    node = Node.here(config, os.environ, for_release=True)
    if _settings(node, job) is None or not job.gpu_indices:
        return Exit.OK
    log = node.log("prolog", job, started_s=started_s)
    _give_up(node, job, log, why)
    log.write(EventKind.OUT_OF_TIME, why)
    _requeue_unplaced(Node.here(config, os.environ), job, log, why)
    log.write(EventKind.END)
    return Exit.OK


def _requeue_unplaced(node: Node, job: HookJob, log: HookLog, why: str) -> None:
    """Requeue a job that an internal error kept from being placed, a few times at most."""
    from prolog.requeue import may_requeue

    if node.config.mode == "enforce" and may_requeue(job):
        _requeue(node, job, log, f"its GPU could not be allocated ({why})", refuse=False)


def _requeue(
    node: Node, job: HookJob, log: HookLog, reason: str, *, refuse: bool, lack: Lack | None = None
) -> bool:
    """Requeue a job, log the outcome, and return whether it waits again."""
    from prolog.requeue import requeue  # most jobs start without it

    event = requeue(node, job, reason, refuse=refuse, lack=lack)
    log.write_event(event)
    return event.kind == EventKind.REQUEUED


def _start(node: Node, job: HookJob, settings: PartitionConfig, log: HookLog) -> None:
    """Place the job and write its environment, or requeue it."""
    wanted = wanted_by(job, node.config, settings, node.slurm)
    if wanted.demand is None:
        log.write(EventKind.UNCHANGED, "MIG")
        node.job_file(job.job_id).remove()
        return
    demanded = with_server(wanted.demand, node, job, settings)
    result = place_job(
        context_of(node, job, demanded, settings, soon=Deadline(node.clock, SOON_S - log.age_s())),
        start_mps=lambda placed: mps_of(node, job, placed, settings, demanded, log),
        requeue=lambda placed: _requeue_unenforced(node, job, placed, log),
    )
    if result.requeued:
        return
    placed, demand = result.placed, result.demand
    gpus, choice = placed.placement.gpus, _choice(wanted, result)
    policy = settings.policy if demand.kind == "shared" else "idle"
    if node.config.mode == "observe":
        log.write(EventKind.WOULD_PLACE, choice, policy=policy, gpus=gpus)
        _mark(node, job)
    elif placed.allocation is None:
        from prolog.requeue import lack_of

        lack = lack_of(placed.placement, demand, settings, now_s=node.clock.now_s())
        _requeue(node, job, log, placed.placement.reason, refuse=True, lack=lack)
    else:
        end_waiting(node.run, job.job_id)
        variables = environment_of(node, job, placed, settings, mps=result.mps or {})
        variables |= task_variables(wanted.by_task)
        if wanted.shards is not None:
            variables["RAD_SHARDS"] = str(wanted.shards)
        node.job_file(job.job_id).place(variables, placed.allocation, boot_id=node.store.boot_id)
        log.write(EventKind.PLACED, choice, policy=policy, gpus=gpus)
        if demand.quarantine and (problem := note_quarantine(node, job, demand.quarantine)):
            log.write(EventKind.NOT_REPORTED, problem)
        if may_hold_old_text(job):
            from prolog.outputs import note_outputs  # most jobs have new files

            with suppress(OSError):
                note_outputs(node, job)


def _choice(wanted: SourcedDemand, result: AttemptResult) -> str:
    """Return the words of the log on a placement: what the job may use and why, its GPUs and the reason for these."""
    placement, demand = result.placed.placement, result.demand
    source = f"{wanted.source} ({wanted.mismatch})" if wanted.mismatch else wanted.source
    quarantine = f"; {demand.quarantine}" if demand.quarantine else ""
    return f"{source} {demand.kind}: {' '.join(placement.gpus)} {placement.reason}{quarantine}"


def _requeue_unenforced(node: Node, job: HookJob, placed: Placed, log: HookLog) -> bool:
    """Requeue a job because the guard is away and its limit would not be enforced; that happens a few times at most."""
    from prolog.requeue import may_requeue

    return may_requeue(job) and _requeue(node, job, log, placed.placement.reason, refuse=False)


def _give_up(node: Node, job: HookJob, log: HookLog, why: str) -> None:
    """Let the job run as Slurm would have run it: release its allocation first, then write to the log."""
    problem = ""
    try:
        node.store.release(job.job_id, restart=job.restart, deadline=Deadline(node.clock, RELEASE_S))
        node.job_file(job.job_id).remove()
        _mark(node, job)
    except (RadError, OSError) as exc:
        problem = str(exc)
    log.write(EventKind.UNCHANGED, why)
    if problem:
        log.write(EventKind.NOT_RELEASED, problem)
