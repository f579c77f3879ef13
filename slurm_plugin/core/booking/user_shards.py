"""Jobs that request shards themselves."""

from __future__ import annotations

from gpumemnet.records import replace
from slurm_plugin.core.booking import messages as words
from slurm_plugin.core.booking.available_gres import AvailableGres
from slurm_plugin.core.booking.bookings import by_hand, shared, whole
from slurm_plugin.core.booking.gres_text import count_of
from slurm_plugin.core.booking.shard_layout import with_shards
from slurm_plugin.core.booking.size import part_for
from slurm_plugin.core.records.submission import (
    JobRequest,
    MemoryEstimate,
    Rewrite,
    UserDirectives,
)
from slurm_plugin.core.units import shards_for


def own_shards(
    shards: int,
    request: JobRequest,
    stated: UserDirectives,
    estimate: MemoryEstimate | None,
    available: AvailableGres,
) -> Rewrite:
    """Book the shards that a job requested, or the GPU if they are all of one.

    Args:
        shards: Number of shards.
        request: The user's request.
        stated: The user's directives.
        estimate: The need of one process; None if it is unknown.
        available: The GRES that it may request.
    """
    if request.whole_nodes:
        return Rewrite(reason="shards of whole nodes", refusal=words.SHARDS_OF_WHOLE_NODES)
    partition = available.partition
    if shards > partition.shards:
        return Rewrite(
            reason="too many shards",
            refusal=words.too_many_shards(shards, partition.shards),
        )
    if shards == partition.shards:
        booking = by_hand(whole(1, request, stated, estimate))
        return _on_one_gpu(Rewrite(booking=booking, reason="own shards"), shards, request, available)
    booked_bytes = shards * partition.shard_bytes
    messages: tuple[str, ...] = ()
    if estimate is not None and (need := part_for(stated, estimate, partition).booked_bytes) > booked_bytes:
        enough = min(shards_for(need, partition.shard_bytes), partition.shards)
        messages = (words.too_few_shards(booked_bytes, need, enough),)
    booking = by_hand(shared(booked_bytes, request, stated, estimate))
    if (gpus := _gpus_by_task(request, available)) > 1:
        booking = replace(
            by_hand(whole(gpus, request, stated, estimate)), kind="shared", memory_bytes=booked_bytes
        )
    rewrite = Rewrite(messages=messages, booking=booking, reason="own shards")
    return _on_one_gpu(rewrite, shards, request, available)


def _gpus_by_task(request: JobRequest, available: AvailableGres) -> int:
    """Return on how many GPUs a user's own per-task shards may lie; where they do, the Prolog asks Slurm."""
    tasks = request.tasks or 1
    return tasks if count_of(request.gres_per_task, "shard") and 1 < tasks <= available.max_shard_gpus else 1


def _on_one_gpu(rewrite: Rewrite, shards: int, request: JobRequest, available: AvailableGres) -> Rewrite:
    """Request the same shards by task where Slurm could otherwise allocate them on several GPUs."""
    if not available.max_shard_gpus or request.interactive or count_of(request.gres, "shard") != shards:
        return rewrite
    kind = next(item.type for item in request.gres if item.name == "shard")
    return with_shards(rewrite, request, available, f"shard:{kind}:{shards}" if kind else f"shard:{shards}")
