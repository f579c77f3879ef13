"""Detect jobs that Slurm starts without the GPUs that they requested.

Seen on 22.05.8 after slurmctld was killed under load: jobs that request a GPU came without SLURM_JOB_GPUS.
Started unchanged, such a job would find every GPU of the node, and train next to jobs with exclusive GPUs.
"""

from __future__ import annotations

from prolog.demand import signed_booking
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.hook_env import HookJob


def why_no_start(node: Node, job: HookJob) -> str | None:
    """Return why a job without GPUs must not start here; None if it never requested any.

    Slurm may give a job of several nodes the GPUs of `--gpus` on some of them only; such a job has no booking.
    A signed booking shows the request, unless the request was changed later: the user may have removed the GPU.
    Then, and for a job without a booking, Slurm is queried; a job without a booking may start if Slurm is silent.

    Args:
        node: This node.
        job: The job, as slurmd passes it to its hooks.
    """
    booking = signed_booking(job, node.config)
    if booking is None and job.several_nodes:
        return None
    not_as_booked = None if booking is None else "Slurm started it without the GPU that it booked"
    if booking is not None and not booking.changed:
        return not_as_booked
    try:
        view = node.slurm().job(job.job_id)
    except SlurmError:
        return not_as_booked
    items = parse_gres(view.gres) if view is not None else ()
    if count_of(items, "gpu") + count_of(items, "shard"):
        return "Slurm started it without the GPU that it requested"
    return None
