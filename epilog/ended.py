"""Record that a run is over, so that no task of the job starts here before its next Prolog."""

from __future__ import annotations

from slurm_plugin.core.ledger.ended_runs import EndedRun, EndedRuns
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.hook_env import HookJob


def note_ended(job: HookJob, node: Node, *, reported: bool, placed: Allocation | None = None) -> None:
    """Record the end of a run that a Prolog placed, whatever this Epilog gets from slurmd.

    Args:
        job: The job, as slurmd passes it to its hooks.
        node: This node.
        reported: Whether the run's end was reported, or there is nothing to report.
        placed: The allocation in the file that the run's Prolog left, if there is one.
    """
    partition = job.partition if placed is None else placed.partition or job.partition
    had_prolog = bool(job.gpu_indices) or node.job_file(job.job_id).exists()
    if node.config.places and had_prolog and node.manages(partition):
        EndedRuns(node.run).note(job.job_id, EndedRun(partition=partition, reported=reported))


def is_reported(job: HookJob, node: Node) -> bool:
    """Return whether the ending run was already reported, or had no Prolog, so that there is nothing to report.

    Args:
        job: The job, as slurmd passes it to its hooks.
        node: This node.
    """
    found = EndedRuns(node.run).of_job(job.job_id)
    return found is not None and found.reported
