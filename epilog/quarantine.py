"""Quarantine a job's user after a GPU fault that ended a shared MPS server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.records.node import Allocation, Outcome
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.hook_env import HookJob

if TYPE_CHECKING:
    from slurm_plugin.mps.quarantine import Caused


def record_fault(
    job: HookJob,
    node: Node,
    allocation: Allocation | None,
    outcome: Outcome,
    settings: PartitionConfig | None,
) -> str:
    """Record the fault of a job and return a sentence on its quarantine; "" if it is not known to have caused one.

    Args:
        job: The job, as slurmd passes it to its hooks.
        node: This node.
        allocation: Its allocation here; None if that is not known.
        outcome: How it ended.
        settings: The partition's settings; None if rad.toml does not name it.
    """
    if settings is None or settings.mps_server == "user" or node.config.mode != "enforce":
        return ""
    if allocation is None or not allocation.part_of_one_gpu:
        return ""
    from slurm_plugin.mps.quarantine import quarantine_of

    try:
        faults = _faults(job, node, allocation, outcome)
    except MpsError as exc:
        return f"its GPU fault ended its MPS server; no quarantine: {exc}"
    now_s = node.clock.now_s()
    found = quarantine_of(faults, job_id=job.job_id, profile_key=allocation.profile_key, now_s=now_s)
    if found is None:
        return ""
    whose = "all its user's jobs" if found.all_jobs else "jobs of its user and model"
    return f"its GPU fault ended its MPS server; until {found.until} {whose} share none with other users here"


def _faults(job: HookJob, node: Node, allocation: Allocation, outcome: Outcome) -> Sequence[Caused]:
    """Return all faults of a job's user if this run of the job is known to have caused one; otherwise none.

    Raises:
        MpsError: The fault could not be recorded.
    """
    from slurm_plugin.mps.quarantine import Caused, add_fault, faults_of

    run = (job.job_id, allocation.restart)
    faults = faults_of(node.run, job.user_id)  # rad-monitor's record: the job may have ended with any status
    if any(one.certain and (one.job_id, one.restart) == run for one in faults):
        return faults
    if outcome.kind != "failed":
        return ()
    from slurm_plugin.guard.incident_file import read_incidents  # an ordinary job caused no fault
    from slurm_plugin.guard.incidents import caused_fault

    fault = caused_fault(job.job_id, read_incidents(node.run), now_s=node.clock.now_s())
    if fault is None:
        return ()
    caused = Caused(
        job_id=job.job_id,
        restart=allocation.restart,
        profile_key=allocation.profile_key,
        time_s=fault.last_s,
    )
    return add_fault(node.run, job.user_id, caused, clock=node.clock)
