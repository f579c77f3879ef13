"""Bind a booking to the request that Slurm fulfils, so that neither can be changed without the other.

A booking names the partitions of its job and how many shards or GPUs it requests. A change of the request marks the
booking as changed (`slurm_job_modify`). The Prolog compares the partition and the number of GPUs, which Slurm passes to
it at no cost. If they differ, or the request was changed, it asks Slurm for the allocation, and that counts. TaskProlog
compares the shards once more, since Slurm passes it their number.
"""

from __future__ import annotations

import hashlib

from gpumemnet.records import replace
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.records.submission import Booking, GresItem, JobRequest, Rewrite
from slurm_plugin.core.units import counted

MOST_PARTITIONS = 8
"""A job that names more passes through unchanged: their marks would not fit into the comment."""


def partition_mark(name: str) -> str:
    """Return the mark of a partition in a signed booking, whatever characters its name has.

    >>> partition_mark("gpu")
    'e3c5ba51'
    """
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:8]


def bound(rewrite: Rewrite, request: JobRequest, default_partition: str) -> Rewrite:
    """Return a decision whose booking records what the job requests from Slurm, and in which partitions.

    Args:
        rewrite: The decision.
        request: The request before the decision.
        default_partition: The partition of a job that names none.
    """
    if rewrite.booking is None:
        return rewrite
    asks_again = "gres" in rewrite.fields or bool(rewrite.each_gpu)
    names = (request.partition or default_partition).split(",")
    if len(names) > MOST_PARTITIONS:
        return Rewrite(reason="too many partitions")
    marks = tuple(partition_mark(name) for name in names)
    booking = replace(
        rewrite.booking,
        shards=_shards(rewrite, rewrite.booking.gpus, request),
        partitions=marks,
        changed=not asks_again and not _plain(request),
        by_node=not (asks_again and (request.gres_per_job or request.gres_per_task)),
    )
    return replace(rewrite, booking=booking)


def is_for(booking: Booking, partitions: str) -> bool:
    """Return whether a booking was made for each of some partitions.

    Args:
        booking: The booking.
        partitions: Their names, separated by commas.
    """
    return {partition_mark(name) for name in partitions.split(",")} <= {*booking.partitions}


def _shards(rewrite: Rewrite, gpus: int, request: JobRequest) -> int:
    """Return how many shards a job requests on each node."""
    if rewrite.each_gpu:
        return gpus * count_of(parse_gres(rewrite.each_gpu), "shard")
    items = parse_gres(rewrite.fields["gres"]) if "gres" in rewrite.fields else request.requested
    return count_of(items, "shard")


def _plain(request: JobRequest) -> bool:
    """Return whether a request alone shows what Slurm allocates: one spelling, and no shards by task or socket."""
    spellings = (request.gres, request.gres_per_job, request.gres_per_task, request.gres_per_socket)
    used = [each for each in spellings if count_of(each, "gpu") or count_of(each, "shard")]
    counted = (*request.gres_per_task, *request.gres_per_socket)
    return len(used) == 1 and not count_of(counted, "shard")


def mismatch_in(booking: Booking, *, partition: str, gpu_indices: int) -> str | None:
    """Return why Slurm must be queried for the job's allocation; None if nothing contradicts its booking.

    Args:
        booking: The job's verified booking.
        partition: Where it starts.
        gpu_indices: Number of GPUs that Slurm allocated to it on this node; a shard counts as its GPU.
    """
    if booking.changed:
        return "only Slurm knows what its request gives"
    if partition_mark(partition) not in booking.partitions:
        return f"it was booked for another partition than {partition}"
    if gpu_indices != booking.gpus:
        return f"Slurm gave it {counted(gpu_indices, 'GPU')} and not {booking.gpus}"
    return None


def least_given(layouts: tuple[tuple[GresItem, ...], ...]) -> tuple[GresItem, ...]:
    """Return the smallest of several layouts that Slurm may have allocated; shards are less than a GPU.

    A user can forge lines of `scontrol show job` through the job's name, but not remove the true one. So a forgery
    can only reduce the allocation.

    >>> least_given((parse_gres("gpu:2"), parse_gres("shard:3"), parse_gres("shard:9")))
    (GresItem(name='shard', type=None, count=3),)
    """

    def size(items: tuple[GresItem, ...]) -> tuple[int, int]:
        shards, gpus = count_of(items, "shard"), count_of(items, "gpu")
        return (0, shards) if shards else (1, gpus)

    return min(layouts, key=size, default=())
