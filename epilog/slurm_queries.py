"""Slurm queries of the Epilog about a job whose end it explains."""

from __future__ import annotations

from slurm_plugin.core.comments.admin_comment import read_signed
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.hook_env import HookJob


def names(node: Node, job: HookJob) -> dict[str, str]:
    """Return the values of the codes in the job's output paths; empty if Slurm does not answer.

    Args:
        node: The node of the hook.
        job: The job, as slurmd passes it to its hooks.
    """
    try:
        return node.slurm().names(job.job_id)
    except SlurmError:
        return {}


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
