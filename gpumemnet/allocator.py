"""PyTorch's CUDA caching allocator, simulated: what a sequence of allocations and frees reserves on the GPU.

nvidia-smi shows what the allocator has reserved, not what tensors use. The difference comes from rounding, segment
sizes, splitting and fragmentation, all of which follow from fixed rules and the order of the calls. The rules are
those of c10/cuda/CUDACachingAllocator.cpp, held against runs of PyTorch 2.11, with `roundup_power2_divisions` and
`max_split_size` off, as by default, and one stream. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

from gpumemnet.units import MIB

MIN_BLOCK_BYTES = 512
"""kMinBlockSize: every size is rounded up to a multiple of it."""
SMALL_BYTES = 1 * MIB
"""kSmallSize: up to here the small pool serves; also the least remainder for which a large block is split."""
SMALL_SEGMENT_BYTES = 2 * MIB
"""kSmallBuffer: the segment asked of the driver for a small block."""
LARGE_SEGMENT_BYTES = 20 * MIB
"""kLargeBuffer: the segment asked of the driver for a block of less than LARGE_DIRECT_BYTES."""
LARGE_DIRECT_BYTES = 10 * MIB
"""kMinLargeAlloc: from here on a block gets a segment of its own size."""
LARGE_ROUND_BYTES = 2 * MIB
"""kRoundLarge: a segment of a block's own size is rounded up to a multiple of it."""
_LARGE_POOL_ADDRESS = 1 << 62
"""Made-up addresses: the two pools never meet."""


class Block:
    """A piece of a segment; its neighbours in the segment are linked."""

    __slots__ = ("address", "free", "next", "pool", "prev", "size")

    def __init__(self, address: int, size: int, prev: Block | None, pool: _Pool) -> None:
        self.address = address
        self.size = size
        self.prev = prev
        self.next: Block | None = None
        self.pool = pool
        self.free = False


class _Pool:
    """The free blocks of one pool, smallest first, and the pool's rules."""

    __slots__ = ("blocks", "end_address", "least_remainder", "segment_bytes", "tail")

    def __init__(self, *, least_remainder: int, segment_bytes: int, start_address: int = 0) -> None:
        self.blocks: list[tuple[int, int, Block]] = []
        self.least_remainder = least_remainder
        self.segment_bytes = segment_bytes
        self.end_address = start_address
        # The last block of an expandable segment; None as long as there is none, and always for plain segments.
        self.tail: Block | None = None

    def add(self, block: Block) -> None:
        block.free = True
        insort(self.blocks, (block.size, block.address, block))

    def remove(self, block: Block) -> None:
        del self.blocks[bisect_left(self.blocks, (block.size, block.address))]
        block.free = False

    def take_best_fit(self, size: int) -> Block | None:
        """Take out the smallest free block of at least `size` bytes; among equals, that of the lowest address."""
        index = bisect_left(self.blocks, (size,))
        if index == len(self.blocks):
            return None
        # The tail can grow without end, so PyTorch counts it as larger than any other block that fits.
        if self.blocks[index][2] is self.tail and index + 1 < len(self.blocks):
            index += 1
        block = self.blocks.pop(index)[2]
        block.free = False
        return block


class CachingAllocator:
    """The allocator's state after the calls made so far.

    Attributes:
        allocated_bytes: In blocks that are in use, as `torch.cuda.memory_allocated()` counts them.
        reserved_bytes: In segments asked of the driver, as `torch.cuda.memory_reserved()`.
        allocated_peak_bytes: The highest `allocated_bytes` so far.
        reserved_peak_bytes: The highest `reserved_bytes` so far.
    """

    def __init__(self, *, expandable_segments: bool = False) -> None:
        """Start with nothing reserved.

        Args:
            expandable_segments: One growing segment per pool, as `expandable_segments:True` makes it.
        """
        self.expandable_segments = expandable_segments
        self.allocated_bytes = self.reserved_bytes = 0
        self.allocated_peak_bytes = self.reserved_peak_bytes = 0
        # should_split: an expandable segment keeps any remainder, a plain large one only those above 1 MiB.
        large_remainder = MIN_BLOCK_BYTES if expandable_segments else SMALL_BYTES + 1
        self._small = _Pool(least_remainder=MIN_BLOCK_BYTES, segment_bytes=SMALL_SEGMENT_BYTES)
        self._large = _Pool(
            least_remainder=large_remainder,
            segment_bytes=LARGE_SEGMENT_BYTES,
            start_address=_LARGE_POOL_ADDRESS,
        )

    def malloc(self, n_bytes: int) -> Block | None:
        """Allocate `n_bytes`; None for a request of zero bytes, which takes no memory."""
        if n_bytes <= 0:
            return None
        size = round_size(n_bytes)
        pool = self._small if size <= SMALL_BYTES else self._large
        block = pool.take_best_fit(size)
        if block is None:
            block = self._grow(pool, size) if self.expandable_segments else self._new_segment(pool, size)
        if block.size - size >= pool.least_remainder:
            _split(pool, block, size)
        self.allocated_bytes += block.size
        if self.allocated_bytes > self.allocated_peak_bytes:
            self.allocated_peak_bytes = self.allocated_bytes
        return block

    def free(self, block: Block | None) -> None:
        """Give a block back; it merges with the free neighbours in its segment."""
        if block is None:
            return
        self.allocated_bytes -= block.size
        pool = block.pool
        before, after = block.prev, block.next
        if before is not None and before.free:
            pool.remove(before)
            block.address = before.address
            block.size += before.size
            block.prev = before.prev
            if before.prev is not None:
                before.prev.next = block
        if after is not None and after.free:
            pool.remove(after)
            block.size += after.size
            block.next = after.next
            if after.next is not None:
                after.next.prev = block
            if after is pool.tail:
                pool.tail = block
        pool.add(block)

    def empty_cache(self) -> None:
        """Give every wholly free plain segment back to the driver, as `torch.cuda.empty_cache()` does."""
        if self.expandable_segments:
            return
        for pool in (self._small, self._large):
            kept = [entry for entry in pool.blocks if entry[2].prev is not None or entry[2].next is not None]
            self.reserved_bytes -= sum(entry[0] for entry in pool.blocks) - sum(entry[0] for entry in kept)
            pool.blocks = kept

    def _new_segment(self, pool: _Pool, size: int) -> Block:
        segment_bytes = pool.segment_bytes
        if size >= LARGE_DIRECT_BYTES:
            segment_bytes = -(-size // LARGE_ROUND_BYTES) * LARGE_ROUND_BYTES
        block = Block(pool.end_address, segment_bytes, None, pool)
        pool.end_address += segment_bytes
        self._reserve(segment_bytes)
        return block

    def _grow(self, pool: _Pool, size: int) -> Block:
        tail = pool.tail
        missing = size - tail.size if tail is not None and tail.free else size
        mapped = -(-missing // pool.segment_bytes) * pool.segment_bytes
        if tail is not None and tail.free:
            pool.remove(tail)
            tail.size += mapped
            block = tail
        else:
            block = Block(pool.end_address, mapped, tail, pool)
            if tail is not None:
                tail.next = block
            pool.tail = block
        pool.end_address += mapped
        self._reserve(mapped)
        return block

    def _reserve(self, n_bytes: int) -> None:
        self.reserved_bytes += n_bytes
        self.reserved_peak_bytes = max(self.reserved_peak_bytes, self.reserved_bytes)


def round_size(n_bytes: int) -> int:
    """Return the block size that a request of `n_bytes` (above 0) asks for.

    >>> round_size(1), round_size(512), round_size(513)
    (512, 512, 1024)
    """
    return -(-n_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES


def _split(pool: _Pool, block: Block, size: int) -> None:
    """Cut `block` down to `size`; what is left of it becomes a free block behind it."""
    rest = Block(block.address + size, block.size - size, block, pool)
    rest.next = block.next
    if block.next is not None:
        block.next.prev = rest
    block.next = rest
    block.size = size
    if pool.tail is block:
        pool.tail = rest
    pool.add(rest)


Event = tuple[int, int | None]
"""One call: (key, bytes) allocates, (key, None) frees what was allocated under that key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What a whole sequence of calls came to.

    Attributes:
        allocated_bytes: The highest sum of blocks in use.
        reserved_bytes: The highest sum of segments.
        allocated_peak_event: Index of the event at which `allocated_bytes` was first reached.
        reserved_peak_event: Index of the event at which `reserved_bytes` was first reached.
    """

    allocated_bytes: int
    reserved_bytes: int
    allocated_peak_event: int
    reserved_peak_event: int


def replay(events: Iterable[Event], *, expandable_segments: bool = False) -> Peaks:
    """Run a sequence of calls through the allocator.

    Args:
        events: In order; a key may be used again once it is freed. A key that is not allocated is ignored when
            freed, as a tensor of zero bytes is.
        expandable_segments: As for `CachingAllocator`.
    """
    allocator = CachingAllocator(expandable_segments=expandable_segments)
    live: dict[int, Block] = {}
    allocated = reserved = allocated_event = reserved_event = 0
    for index, (key, n_bytes) in enumerate(events):
        if n_bytes is None:
            allocator.free(live.pop(key, None))
            continue
        block = allocator.malloc(n_bytes)
        if block is None:
            continue
        live[key] = block
        if allocator.allocated_bytes > allocated:
            allocated, allocated_event = allocator.allocated_bytes, index
        if allocator.reserved_bytes > reserved:
            reserved, reserved_event = allocator.reserved_bytes, index
    return Peaks(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        allocated_peak_event=allocated_event,
        reserved_peak_event=reserved_event,
    )
