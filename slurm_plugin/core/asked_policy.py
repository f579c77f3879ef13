"""Jobs that keep what they asked for: shards of their own choice, or several GPUs."""

from __future__ import annotations

from slurm_plugin.core import words
from slurm_plugin.core.bookings import by_hand, shared, whole
from slurm_plugin.core.config import PartitionConfig
from slurm_plugin.core.records import (
    Claims,
    JobRequest,
    MemoryEstimate,
    Rewrite,
)
from slurm_plugin.core.units import shards_for


def own_shards(
    shards: int,
    request: JobRequest,
    claims: Claims,
    estimate: MemoryEstimate | None,
    partition: PartitionConfig,
) -> Rewrite:
    """Book the shards that a job asked for, or the GPU if they are all of one.

    Args:
        shards: So many.
        request: What the user asked for.
        claims: What the user says about the job.
        estimate: The need of one process; None if it is unknown.
        partition: Settings of its partition.
    """
    if request.whole_nodes:
        return Rewrite(reason="shards of whole nodes", refusal=words.SHARDS_OF_WHOLE_NODES)
    if shards > partition.shards:
        return Rewrite(
            reason="too many shards",
            refusal=words.too_many_shards(shards, partition.shards),
        )
    if shards == partition.shards:
        return Rewrite(booking=by_hand(whole(1, claims, estimate)), reason="own shards")
    booked_bytes = shards * partition.shard_bytes
    messages: tuple[str, ...] = ()
    if estimate is not None and estimate.upper_bytes > booked_bytes:
        enough = min(shards_for(estimate.upper_bytes, partition.shard_bytes), partition.shards)
        messages = (words.too_few_shards(booked_bytes, estimate, enough),)
    booking = by_hand(shared(booked_bytes, request, claims, estimate))
    return Rewrite(messages=messages, booking=booking, reason="own shards")


def several(
    gpus: int, claims: Claims, estimate: MemoryEstimate | None, partition: PartitionConfig
) -> Rewrite:
    """Book several GPUs of one node as a whole.

    Args:
        gpus: So many.
        claims: What the user says about the job.
        estimate: The need of one process; None if it is unknown.
        partition: Settings of its partition.
    """
    messages: tuple[str, ...] = ()
    if claims.gpus is not None and claims.gpus != gpus:
        messages = (words.other_count(claims.gpus, gpus),)
    elif estimate is not None and estimate.estimate_bytes > partition.capacity_bytes:
        messages = (words.each_too_large(estimate, partition.capacity_bytes),)
    return Rewrite(messages=messages, booking=whole(gpus, claims, estimate), reason="multi-gpu")
