"""Request a decision's shards from Slurm: by node, or by task where they could otherwise lie on several GPUs."""

from __future__ import annotations

from gpumemnet.records import replace
from slurm_plugin.core.booking.available_gres import AvailableGres
from slurm_plugin.core.booking.gres_request import (
    cleared_environment,
    requested_tasks,
    shard_fields,
    task_fields,
)
from slurm_plugin.core.records.submission import JobRequest, Rewrite


def with_shards(
    rewrite: Rewrite, request: JobRequest, available: AvailableGres, gres: str, gpus: int = 1
) -> Rewrite:
    """Return a decision with the changes of the submission that request what it books.

    Args:
        rewrite: The decision.
        request: The user's request.
        available: The GRES that it may request.
        gres: The GRES that it requests of each GPU: "shard:12".
        gpus: Number of GPUs.
    """
    environment = cleared_environment(request)
    by_task = available.max_shard_gpus > 0 and gres.startswith("shard") and not request.interactive
    if not by_task or rewrite.booking is None:
        return replace(rewrite, fields=shard_fields(request, gres), environment=environment)
    return replace(
        rewrite,
        fields=task_fields(request, gres, gpus),
        environment=environment,
        booking=replace(rewrite.booking, by_task=requested_tasks(request, gpus)),
        each_gpu=gres,
    )
