"""Jobs with several GPUs of one node: they get them exclusively, or share each of them (`share_multi_gpu`)."""

from __future__ import annotations

from gpumemnet.records import replace
from slurm_plugin.core.booking import messages
from slurm_plugin.core.booking.available_gres import AvailableGres
from slurm_plugin.core.booking.bookings import if_stated, whole
from slurm_plugin.core.booking.gres_request import gpu_obstacle
from slurm_plugin.core.booking.shard_layout import with_shards
from slurm_plugin.core.booking.size import part_for
from slurm_plugin.core.records.submission import JobRequest, MemoryEstimate, Rewrite, UserDirectives
from slurm_plugin.core.units import counted


def several(
    gpus: int,
    request: JobRequest,
    stated: UserDirectives,
    estimate: MemoryEstimate | None,
    available: AvailableGres,
) -> Rewrite:
    """Book several GPUs of one node: a part of each where that is possible, otherwise whole GPUs.

    Args:
        gpus: Number of GPUs.
        request: The user's request.
        stated: The user's directives.
        estimate: The need of one process; None if it is unknown.
        available: The GRES that it may request.
    """
    partition = available.partition
    kept = Rewrite(booking=whole(gpus, request, stated, estimate), reason="multi-gpu")
    if stated.gpus is not None and stated.gpus != gpus:
        return replace(kept, messages=(messages.other_count(stated.gpus, gpus),))
    if estimate is None:
        return kept
    if estimate.estimate_bytes > partition.capacity_bytes:
        return replace(kept, messages=(messages.each_too_large(estimate, partition.capacity_bytes),))
    if stated.policy == "exclusive":
        return kept
    obstacle = _obstacle(gpus, request, stated, estimate, available)
    if obstacle is not None:
        return replace(kept, messages=if_stated(stated, messages.keeps_gpus(obstacle)))
    return _shared(gpus, request, stated, estimate, available, kept)


def _obstacle(
    gpus: int, request: JobRequest, stated: UserDirectives, estimate: MemoryEstimate, available: AvailableGres
) -> str | None:
    """Return why a job cannot share its GPUs; None if it can."""
    if not available.partition.share_multi_gpu:
        return messages.SEVERAL_GPUS
    if not available.guarded:
        return "MPS serves one GPU per job, and the guard, which enforces limits without MPS, is off"
    if request.interactive:
        return "jobs of srun and salloc can share one GPU only"
    most = max(available.max_shard_gpus, 1)
    if gpus > most:
        return f"this Slurm gives a job shards of at most {counted(most, 'GPU')}"
    if (request.tasks or 1) not in (1, gpus):
        return f"{request.tasks} tasks on {gpus} GPUs are neither one task nor one per GPU"
    if stated.gpus is None and estimate.source != "stated":
        return f"the need of each process is unknown without #RAD gpus={gpus}"
    return gpu_obstacle(request, available.partition)


def _shared(
    gpus: int,
    request: JobRequest,
    stated: UserDirectives,
    estimate: MemoryEstimate,
    available: AvailableGres,
    kept: Rewrite,
) -> Rewrite:
    """Return the decision on a job with one process on each of its GPUs."""
    part = part_for(stated, estimate, available.partition, gpus=gpus)
    if not part.fits or kept.booking is None:
        why = messages.may_need(part.need_bytes, available.partition.capacity_bytes)
        return replace(kept, messages=if_stated(stated, messages.alone(why, gpus)))
    rewrite = replace(
        kept,
        messages=if_stated(stated, part.message),
        booking=part.of(replace(kept.booking, kind="shared", memory_bytes=part.booked_bytes)),
        reason="shared",
        share=part.share,
    )
    return with_shards(rewrite, request, available, available.share(part.requested), gpus)
