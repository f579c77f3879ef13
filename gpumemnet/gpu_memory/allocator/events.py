"""A recorded sequence of allocator calls, and its peaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional

from gpumemnet.gpu_memory.allocator.blocks import Block
from gpumemnet.gpu_memory.allocator.caching import CachingAllocator
from gpumemnet.records import frozen

AllocatorCall = tuple[int, Optional[int]]
"""One call: (key, bytes) allocates, (key, None) frees the allocation of that key."""


@frozen
class AllocatorPeaks:
    """Peaks of a sequence of calls.

    Attributes:
        allocated_bytes: The highest sum of blocks in use.
        reserved_bytes: The highest sum of segments.
        allocated_peak_event: Index of the event at which `allocated_bytes` was first reached.
    """

    allocated_bytes: int
    reserved_bytes: int
    allocated_peak_event: int


_ONE_POOL: Mapping[int, int] = {}


def replay(
    events: Iterable[AllocatorCall],
    *,
    pool_of: Mapping[int, int] = _ONE_POOL,
    expandable_segments: bool = False,
) -> AllocatorPeaks:
    """Run a sequence of calls through the allocator.

    Args:
        events: In order; a freed key may be used again. A key that is not allocated is ignored when freed, as for a
            tensor of zero bytes.
        pool_of: Stream number of a key's memory; each stream has separate segments. Missing keys belong to the default
            stream, 0.
        expandable_segments: As for `CachingAllocator`.
    """
    pools: dict[int, CachingAllocator] = {}
    live: dict[int, Block] = {}
    allocated = reserved = allocated_event = 0
    for index, (key, n_bytes) in enumerate(events):
        pool = pool_of.get(key, 0)
        allocator = pools.get(pool)
        if allocator is None:
            allocator = pools[pool] = CachingAllocator(expandable_segments=expandable_segments)
        if n_bytes is None:
            allocator.free(live.pop(key, None))
            continue
        block = allocator.malloc(n_bytes)
        if block is None:
            continue
        live[key] = block
        in_use = sum(each.allocated_bytes for each in pools.values())
        if in_use > allocated:
            allocated, allocated_event = in_use, index
        reserved = max(reserved, sum(each.reserved_bytes for each in pools.values()))
    return AllocatorPeaks(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        allocated_peak_event=allocated_event,
    )
