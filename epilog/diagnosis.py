"""Ask rad-monitor's records whether a job was stopped, or ended through another job's fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.comments.admin_comment import read_signed
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.records.node import Allocation, Diagnosis, Outcome
from slurm_plugin.guard.incident_file import read_incidents
from slurm_plugin.guard.incidents import Ended, diagnosis_of
from slurm_plugin.monitor.next_sample import await_sample
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.hook_env import HookJob


def diagnose(
    allocation: Allocation,
    outcome: Outcome,
    config: Config,
    clock: Clock,
    *,
    left_s: float | None = None,
    server_ends: Callable[[], int],
) -> Diagnosis | None:
    """Return the monitor's verdict on a job; None if the job itself was the cause, or no monitor watched.

    Args:
        allocation: The job's allocation.
        outcome: Why it ended, according to its output.
        config: rad.toml.
        clock: Time.
        left_s: When the monitor last saw it on a GPU, seconds since the epoch; None if never.
        server_ends: Returns the number of reruns because an MPS server ended for an unknown reason; called where that
            may have happened again.
    """
    run = Path(config.paths.run)
    if outcome.kind in ("gpu-oom", "failed"):
        await_sample(run, clock)  # what ended the job may not be in its last one
    ended = Ended(
        job_id=allocation.job_id,
        restart=allocation.restart,
        gpus=allocation.gpus,
        limit_bytes=allocation.booked_bytes,
        outcome=outcome,
        left_s=left_s,
    )
    incidents = read_incidents(run)
    if outcome.kind in ("gpu-oom", "failed") and (run / "mps").is_dir():  # rad-monitor may be away just then
        from slurm_plugin.guard.ended_servers import ended_servers
        from slurm_plugin.mps import Mps

        incidents += tuple(ended_servers(Mps(run, clock=clock), now_s=clock.now_s()))
    diagnosis = diagnosis_of(ended, incidents, now_s=clock.now_s())
    if diagnosis is not None and diagnosis.server_ends:
        ended = replace(ended, server_ends=server_ends())
        diagnosis = diagnosis_of(ended, incidents, now_s=clock.now_s())
    return diagnosis


def server_ends(node: Node, job: HookJob) -> int:
    """Return the number of reruns because an MPS server ended; 0 if Slurm does not answer.

    Args:
        node: The node of the hook.
        job: The job, as slurmd passes it to its hooks.
    """
    try:
        view = node.slurm().job(job.job_id)
    except SlurmError:
        return 0
    if view is None:
        return 0
    note = read_signed(view.admin_comment, job_id=job.job_id, user_id=job.user_id, key=node.key())
    return (note.server_ends if note is not None else None) or 0
