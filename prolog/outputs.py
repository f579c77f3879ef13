"""Record for the Epilog the state of the job's output files before this run."""

from __future__ import annotations

from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.hook_env import HookJob


def note_outputs(node: Node, job: HookJob) -> None:
    """Record files that an earlier run may have written to; if that fails, all of the output will count.

    Args:
        node: This node.
        job: The job, as slurmd passes it to its hooks.
    """
    from slurm_plugin.slurm.node.output_before import keep, look
    from slurm_plugin.slurm.node.output_files import expected_outputs, names_of
    from slurm_plugin.slurm.node.owner import Identity

    owner = Identity(user_id=job.user_id, group_id=job.group_id, user_name=job.user_name)
    keep(node.run, job.job_id, look(expected_outputs(job, names_of(job, node.slurm)), owner))
