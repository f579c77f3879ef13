"""Size of a job: its memory at the chosen confidence, the shards for its compute, its part of a GPU."""

from __future__ import annotations

import math

from gpumemnet.records import frozen, replace
from slurm_plugin.core.booking import messages
from slurm_plugin.core.booking.bookings import by_hand
from slurm_plugin.core.booking.confidence import Size, size_of
from slurm_plugin.core.config.compute import TRAINS, TURNS
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.records.submission import (
    Booking,
    MemoryEstimate,
    UserDirectives,
)
from slurm_plugin.core.units import from_mib, shards_for


@frozen
class GpuPart:
    """The part of a GPU that a job needs, or of each of its GPUs.

    Attributes:
        need_bytes: Need at the chosen confidence.
        fits: Whether it leaves a part of the GPU free; otherwise the job needs a whole one.
        booked_bytes: Memory of the shards that its memory needs.
        cap_bytes: Its limit; None if that is the booking.
        requested: Shards to request from Slurm, because of its memory or its compute.
        by_user: Whether the user chose to book less than the site would.
        share: Share of jobs for which the booking is large enough; None if unknown.
        message: Message for the user.
    """

    need_bytes: int
    fits: bool
    booked_bytes: int
    cap_bytes: int | None
    requested: int
    by_user: bool
    share: float | None
    message: str

    def of(self, booking: Booking) -> Booking:
        """Return a booking with this part's limit, marked as the user's choice if it was."""
        return replace(by_hand(booking) if self.by_user else booking, cap_bytes=self.cap_bytes)


def part_for(
    stated: UserDirectives,
    estimate: MemoryEstimate | None,
    partition: PartitionConfig,
    *,
    processes: int = 1,
    gpus: int = 1,
) -> GpuPart:
    """Return the part of a GPU that a job needs.

    Args:
        stated: The user's directives.
        estimate: The need of one process; None if it is unknown.
        partition: Settings of its partition.
        processes: Number that share the GPU.
        gpus: Number of GPUs of which it needs such a part.
    """
    size = size_for(stated, estimate, partition)
    need_bytes = processes * size.booked_bytes
    shards = shards_for(need_bytes, partition.shard_bytes)
    booked_bytes = shards * partition.shard_bytes
    cap_bytes = min(processes * size.cap_bytes, partition.capacity_bytes)
    above_booking_bytes = cap_bytes if cap_bytes > booked_bytes else None
    turns = gpus > 1 or partition.sharing == "streams"
    requested = max(shards, compute_shards(processes, estimate, partition, turns=turns))
    return GpuPart(
        need_bytes=need_bytes,
        fits=shards < partition.shards and need_bytes <= partition.capacity_bytes,
        booked_bytes=booked_bytes,
        cap_bytes=above_booking_bytes,
        requested=requested,
        by_user=size.by_user,
        share=size.share,
        message=messages.reserves(
            booked_bytes,
            estimate,
            gpus=gpus,
            processes=processes,
            share=size.share,
            cap_bytes=above_booking_bytes,
            compute=(requested, partition.shards) if requested > shards else None,
        ),
    )


def compute_shards(
    processes: int, estimate: MemoryEstimate | None, partition: PartitionConfig, *, turns: bool = False
) -> int:
    """Return the number of shards for the compute that a job is expected to use; 0 where only memory counts.

    A job of unknown activity counts as in the placement: otherwise hiding it would be an advantage. A job that was not
    measured in a run yet is assumed to wait for data for some of its time. Never all shards of a GPU: compute can be
    shared, and only memory needs a whole GPU.

    Args:
        processes: Number that share the GPU.
        estimate: The need of one process; None if it is unknown.
        partition: Settings of its partition.
        turns: Whether the job is time-sliced with the others: it runs outside of their MPS servers. While its kernels
            run no others do, so their run time counts, and not the SMs that they keep busy meanwhile.
    """
    if not partition.compute_overcommit:
        return 0
    known = None if estimate is None else (estimate.busy if turns else estimate.smact)
    if turns:
        part = 1.0 if known is None else min(1.0, TURNS * known)
    else:
        part = partition.smact_max / 2 if known is None else known
    seen = known is not None and estimate is not None and estimate.smact_seen
    if not seen:
        part *= TRAINS
    share = processes * part / partition.compute_overcommit
    return min(math.ceil(share * partition.shards), partition.shards - 1)


def size_for(stated: UserDirectives, estimate: MemoryEstimate | None, partition: PartitionConfig) -> Size:
    """Return the size of one process.

    Args:
        stated: The user's directives.
        estimate: The need of one process; None if it is unknown.
        partition: Settings of its partition.
    """
    if estimate is None:
        free_bytes = from_mib(partition.free_min_mib)
        return Size(booked_bytes=free_bytes, cap_bytes=free_bytes, share=None)
    return size_of(estimate, site=partition.confidence, user=stated.confidence)
