"""Jobs with several GPUs of one node: they get them exclusively, or share each of them (`share_multi_gpu`)."""

from __future__ import annotations

from dataclasses import replace

from slurm_plugin.core.booking import messages
from slurm_plugin.core.booking.available_gres import Offer
from slurm_plugin.core.booking.bookings import spoken, whole
from slurm_plugin.core.booking.gres_request import gpu_obstacle
from slurm_plugin.core.booking.shard_layout import with_shards
from slurm_plugin.core.booking.size import part_for
from slurm_plugin.core.records.submission import Claims, JobRequest, MemoryEstimate, Rewrite


def several(
    gpus: int, request: JobRequest, claims: Claims, estimate: MemoryEstimate | None, offer: Offer
) -> Rewrite:
    """Book several GPUs of one node: a part of each where that is possible, otherwise whole GPUs.

    Args:
        gpus: Number of GPUs.
        request: The user's request.
        claims: The user's directives.
        estimate: The need of one process; None if it is unknown.
        offer: The GRES that it may request.
    """
    partition = offer.partition
    kept = Rewrite(booking=whole(gpus, request, claims, estimate), reason="multi-gpu")
    if claims.gpus is not None and claims.gpus != gpus:
        return replace(kept, messages=(messages.other_count(claims.gpus, gpus),))
    if estimate is None:
        return kept
    if estimate.estimate_bytes > partition.capacity_bytes:
        return replace(kept, messages=(messages.each_too_large(estimate, partition.capacity_bytes),))
    if claims.policy == "exclusive":
        return kept
    obstacle = _obstacle(gpus, request, claims, estimate, offer)
    if obstacle is not None:
        return replace(kept, messages=(messages.keeps_gpus(obstacle),) if spoken(claims) else ())
    return _shared(gpus, request, claims, estimate, offer, kept)


def _obstacle(
    gpus: int, request: JobRequest, claims: Claims, estimate: MemoryEstimate, offer: Offer
) -> str | None:
    """Return why a job cannot share its GPUs; None if it can."""
    if not offer.partition.share_multi_gpu:
        return messages.SEVERAL_GPUS
    if not offer.guarded:
        return "MPS serves one GPU per job, and the guard, which enforces limits without MPS, is off"
    if request.interactive:
        return "jobs of srun and salloc can share one GPU only"
    if gpus > max(offer.spread, 1):
        return (
            f"this Slurm gives a job shards of at most {max(offer.spread, 1)} GPU{'s' * (offer.spread > 1)}"
        )
    if (request.tasks or 1) not in (1, gpus):
        return f"{request.tasks} tasks on {gpus} GPUs are neither one task nor one per GPU"
    if claims.gpus is None and estimate.source != "stated":
        return f"the need of each process is unknown without #RAD gpus={gpus}"
    return gpu_obstacle(request, offer.partition)


def _shared(
    gpus: int, request: JobRequest, claims: Claims, estimate: MemoryEstimate, offer: Offer, kept: Rewrite
) -> Rewrite:
    """Return the decision on a job with one process on each of its GPUs."""
    part = part_for(claims, estimate, offer.partition, gpus=gpus)
    if not part.fits or kept.booking is None:
        why = messages.may_need(part.need_bytes, offer.partition.capacity_bytes)
        return replace(kept, messages=(messages.alone(why, gpus),) if spoken(claims) else ())
    rewrite = replace(
        kept,
        messages=(part.message,) if spoken(claims) else (),
        booking=part.of(replace(kept.booking, kind="shared", memory_bytes=part.booked_bytes)),
        reason="shared",
    )
    return with_shards(rewrite, request, offer, offer.share(part.asked), gpus)
