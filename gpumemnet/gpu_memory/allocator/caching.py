"""Simulate PyTorch's CUDA caching allocator: the GPU memory reserved by a sequence of allocations and frees.

nvidia-smi shows the allocator's reserved memory, not the memory of tensors. The difference comes from rounding, segment
sizes, splitting and fragmentation, which follow from fixed rules and the order of the calls. The rules are those of
c10/cuda/CUDACachingAllocator.cpp, compared with runs of PyTorch 2.11, with `roundup_power2_divisions` and
`max_split_size` off, as by default, and one stream; sizes are in rules/rules.csv. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from gpumemnet.gpu_memory.allocator.blocks import (
    ADDRESS_BITS,
    ADDRESS_MASK,
    LARGE_POOL_ADDRESS,
    MIN_BLOCK_BYTES,
    UNIT_BITS,
    Block,
    Pool,
    joined,
    size_of,
    units,
)
from gpumemnet.gpu_memory.rules import numbers


class CachingAllocator:
    """The allocator's state after the calls made so far.

    Attributes:
        reserved_bytes: Bytes in segments from the driver, as `torch.cuda.memory_reserved()`.
        reserved_peak_bytes: The highest `reserved_bytes` so far.
    """

    def __init__(self, *, expandable_segments: bool = False) -> None:
        """Create an allocator with nothing reserved.

        Args:
            expandable_segments: One growing segment per pool, as with `expandable_segments:True`.
        """
        rule = numbers.of("allocator")
        self._small_bytes = rule["small"]
        self._large_direct, self._large_round = units(rule["large_direct"]), units(rule["large_round"])
        self.expandable_segments = expandable_segments
        self.reserved_bytes = self.reserved_peak_bytes = 0
        self._allocated = self._allocated_peak = 0
        # should_split: an expandable segment keeps any remainder, a plain large one only those above 1 MiB.
        large_remainder = 1 if expandable_segments else units(rule["small"]) + 1
        # An expandable segment grows upwards. Plain ones come at ever lower addresses, as from the driver. This decides
        # between free blocks of one size: the lowest address is used, so that of the latest segment.
        small_end, large_end = LARGE_POOL_ADDRESS, 1 << ADDRESS_BITS
        if expandable_segments:
            small_end, large_end = 0, LARGE_POOL_ADDRESS
        self._small = Pool(segment=units(rule["small_segment"]), least_remainder=1, end=small_end)
        self._large = Pool(
            segment=units(rule["large_segment"]), least_remainder=large_remainder, end=large_end
        )
        # The free block that begins, or ends, at an address: a freed neighbour merges with it.
        self._beginning: dict[int, Block] = {}
        self._ending: dict[int, Block] = {}
        self._segments: set[Block] = set()  # plain ones

    @property
    def allocated_bytes(self) -> int:
        """Bytes in blocks in use, as in `torch.cuda.memory_allocated()`."""
        return self._allocated << UNIT_BITS

    @property
    def allocated_peak_bytes(self) -> int:
        """The highest `allocated_bytes` so far."""
        return self._allocated_peak << UNIT_BITS

    def malloc(self, n_bytes: int, times: int = 1) -> Block | None:
        """Allocate `n_bytes`; None for a request of zero bytes, which takes no memory.

        With `times` it equals that many calls in a row, or fewer: as many as fit next to each other into the free block
        of the first call. They are returned as one block.

        Args:
            n_bytes: Size of one block.
            times: Number of calls.
        """
        if n_bytes <= 0:
            return None
        size = -(-n_bytes // MIN_BLOCK_BYTES)
        pool = self._small if n_bytes <= self._small_bytes else self._large
        free = pool.free
        want = size << ADDRESS_BITS
        at = 0 if free and free[0] >= want else bisect_left(free, want)  # the smallest one often fits
        if at == len(free):
            self._grow(pool, size)
            at = len(free) - 1
        elif self.expandable_segments:
            at = pool.spare_tail(at)
        block = free[at]
        address, whole = block & ADDRESS_MASK, block >> ADDRESS_BITS
        if times > 1:
            size *= min(times, whole // size)
        left = whole - size
        del self._beginning[address]
        if left >= pool.least_remainder:
            block = size << ADDRESS_BITS | address
            address += size
            rest = left << ADDRESS_BITS | address
            self._beginning[address] = self._ending[address + left] = rest
            if at and rest < free[at - 1]:
                del free[at]
                insort(free, rest, 0, at)
            else:
                free[at] = rest
        else:
            del free[at]
            size += left
            del self._ending[address + size]
        self._allocated = allocated = self._allocated + size
        if allocated > self._allocated_peak:
            self._allocated_peak = allocated
        return block

    def malloc_all(self, runs: Iterable[tuple[int, int]]) -> list[Block]:
        """Allocate all of these in order; return the blocks, equal neighbours as one.

        Args:
            runs: Pairs of a size in bytes and its number of requests in a row.
        """
        malloc, made = self.malloc, list[Block]()
        for n_bytes, times in runs:
            size = -(-n_bytes // MIN_BLOCK_BYTES)
            while times > 0 and (block := malloc(n_bytes, times)) is not None:
                made.append(block)
                times -= (block >> ADDRESS_BITS) // size
        return made

    def free_all(self, blocks: Iterable[Block | None]) -> None:
        """Free blocks, with neighbours together, which is equivalent and faster."""
        for block in joined(blocks):
            self.free(block)

    def free(self, block: Block | None) -> None:
        """Free a block; it merges with the free neighbours in its segment."""
        if block is None:
            return
        address, size = block & ADDRESS_MASK, block >> ADDRESS_BITS
        self._allocated -= size
        free = self._small.free if address < LARGE_POOL_ADDRESS else self._large.free
        end = address + size
        before, after = self._ending.pop(address, None), self._beginning.pop(end, None)
        if after is not None:
            del free[bisect_left(free, after)]
            end += after >> ADDRESS_BITS
            block = (end - address) << ADDRESS_BITS | address
        if before is not None:
            del free[bisect_left(free, before)]
            address = before & ADDRESS_MASK
            block = (end - address) << ADDRESS_BITS | address
        self._beginning[address] = self._ending[end] = block
        insort(free, block)

    def borrow(self, n_bytes: int) -> None:
        """Allocate and free at once, the same as `free(malloc(n_bytes))`.

        A split block merges again: if some free block is large enough, only the peak may change.
        """
        size = -(-n_bytes // MIN_BLOCK_BYTES)
        pool = self._small if n_bytes <= self._small_bytes else self._large
        most = self._allocated + size + pool.least_remainder  # an unsplit block is larger by less than this
        if pool.free and pool.free[-1] >= size << ADDRESS_BITS and most <= self._allocated_peak:
            return
        at = bisect_left(pool.free, size << ADDRESS_BITS)
        if n_bytes <= 0 or at == len(pool.free) or self.expandable_segments:
            self.free(self.malloc(n_bytes))
            return
        whole = pool.free[at] >> ADDRESS_BITS
        allocated = self._allocated + (size if whole - size >= pool.least_remainder else whole)
        if allocated > self._allocated_peak:
            self._allocated_peak = allocated

    def empty_cache(self) -> None:
        """Return every wholly free plain segment to the driver, as `torch.cuda.empty_cache()` does."""
        for pool in (self._small, self._large):
            for segment in self._segments.intersection(pool.free):
                pool.free.remove(segment)
                address, size = segment & ADDRESS_MASK, segment >> ADDRESS_BITS
                del self._beginning[address], self._ending[address + size]
                self._segments.remove(segment)
                self.reserved_bytes -= size_of(segment)

    def _grow(self, pool: Pool, size: int) -> None:
        """Request memory from the driver, so that the largest free block has at least `size` units."""
        if self.expandable_segments:
            address = pool.end
            tail = self._ending.get(address)
            missing = size if tail is None else size - (tail >> ADDRESS_BITS)
            new = -(-missing // pool.segment) * pool.segment
            pool.end = address + new
        else:
            new = pool.segment
            if size >= self._large_direct:
                new = -(-size // self._large_round) * self._large_round
            address = pool.end = pool.end - new - 1  # a gap: blocks of two segments never merge
        self._reserve(new << UNIT_BITS)
        block = new << ADDRESS_BITS | address
        if not self.expandable_segments:
            self._segments.add(block)
        self._allocated += new
        self.free(block)

    def _reserve(self, n_bytes: int) -> None:
        self.reserved_bytes += n_bytes
        self.reserved_peak_bytes = max(self.reserved_peak_bytes, self.reserved_bytes)
