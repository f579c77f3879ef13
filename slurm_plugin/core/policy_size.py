"""The size of a job: its memory at the chosen confidence, and the shards that stand for its compute."""

from __future__ import annotations

import math

from slurm_plugin.core.compute import TRAINS
from slurm_plugin.core.config import PartitionConfig
from slurm_plugin.core.records import (
    Claims,
    MemoryEstimate,
)
from slurm_plugin.core.risk import Card, Size, size_of
from slurm_plugin.core.units import from_mib


def compute_shards(processes: int, estimate: MemoryEstimate | None, partition: PartitionConfig) -> int:
    """Return how many shards stand for the compute that a job is expected to take; 0 where only memory counts.

    A job of unknown activity counts as the placement counts it: else to tell nothing would be the way to the front.
    What no run has shown yet is taken to wait for data for some of its time, but where the site promises a speed. Never
    all of a GPU: compute can be shared, and only memory needs a GPU alone.

    Args:
        processes: That share the GPU.
        estimate: The need of one process; None if it is unknown.
        partition: Settings of its partition.
    """
    if not partition.packed_activity:
        return 0
    known = None if estimate is None else estimate.smact
    smact = partition.smact_max / 2 if known is None else known
    if not partition.max_slowdown and not (estimate is not None and estimate.smact_seen):
        smact *= TRAINS
    share = processes * smact / partition.packed_activity
    return min(math.ceil(share * partition.shards), partition.shards - 1)


def size_for(claims: Claims, estimate: MemoryEstimate | None, partition: PartitionConfig) -> Size:
    """Return the size of one process.

    Args:
        claims: What the user says about the job.
        estimate: The need of one process; None if it is unknown.
        partition: Settings of its partition.
    """
    if estimate is None:
        free_bytes = from_mib(partition.free_min_mib)
        return Size(booked_bytes=free_bytes, cap_bytes=free_bytes, share=None)
    recovery = partition.recovery if claims.retry and partition.max_recoveries else "off"
    return size_of(
        estimate,
        site=partition.confidence,
        user=claims.confidence,
        card=Card(
            usable_bytes=partition.capacity_bytes, shard_bytes=partition.shard_bytes, recovery=recovery
        ),
    )
