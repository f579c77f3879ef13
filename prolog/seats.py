"""Jobs that Slurm starts without the GPUs that they ask for.

Seen on 22.05.8 after slurmctld was killed under load: jobs with a GPU in their request came without SLURM_JOB_GPUS.
Left alone such a job would find every GPU of the node, and train beside jobs that own theirs.
"""

from __future__ import annotations

from prolog.demand import signed_booking
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.gres import count_of, parse_gres
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.hook_env import HookJob


def why_no_start(node: Node, job: HookJob) -> str | None:
    """Return why a job without GPUs must not start here; None if it never asked for any.

    A signed booking says so by itself; of a job without one Slurm is asked, and believed to be right if it is silent.

    Args:
        node: This node.
        job: The job, as slurmd tells its hooks.
    """
    if signed_booking(job, node.config) is not None:
        return "Slurm started it without the GPU that it books"
    try:
        view = node.slurm().job(job.job_id)
    except SlurmError:
        return None
    items = parse_gres(view.gres) if view is not None else ()
    if count_of(items, "gpu") + count_of(items, "shard"):
        return "Slurm started it without the GPU that it asked for"
    return None
