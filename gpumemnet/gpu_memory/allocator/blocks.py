"""Represent blocks of the simulated caching allocator as single numbers, and its pools of free ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MIN_BLOCK_BYTES = 512
"""kMinBlockSize: every size is rounded up to a multiple."""

UNIT_BITS = MIN_BLOCK_BYTES.bit_length() - 1
"""Internally, sizes and addresses count units of 512 bytes: Python is faster with small numbers."""
ADDRESS_BITS = 40
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1
LARGE_POOL_ADDRESS = 1 << (ADDRESS_BITS - 1)
"""Addresses are invented: the two pools never meet, and the end of memory is 256 TiB away."""

Block = int
"""A piece of a segment as one number: its size and, in the low bits, its address. A smaller block, or one of equal size
and lower address, is a smaller number: the best fit is found by bisection in a sorted list."""


def size_of(block: Block) -> int:
    """Return a block's size in bytes."""
    return block >> ADDRESS_BITS << UNIT_BITS


def joined(blocks: Iterable[Block | None]) -> Iterator[Block]:
    """Yield blocks by address, adjacent ones as one."""
    by_address = sorted(
        [(block & ADDRESS_MASK, block >> ADDRESS_BITS) for block in blocks if block is not None]
    )
    begin = end = -1
    for address, size in by_address:
        if address != end:
            if end >= 0:
                yield (end - begin) << ADDRESS_BITS | begin
            begin = address
        end = address + size
    if end >= 0:
        yield (end - begin) << ADDRESS_BITS | begin


def units(n_bytes: int) -> int:
    """Return the number of units that hold this many bytes."""
    return -(-n_bytes // MIN_BLOCK_BYTES)


class Pool:
    """The free blocks of one pool, smallest first, and the pool's rules.

    Attributes:
        segment: Units of the smallest segment from the driver.
        least_remainder: A block is split if at least this many units remain.
        end: Address below which the next segment lies; end of an expandable one.
        free: The free blocks, in order.
    """

    def __init__(self, *, segment: int, least_remainder: int, end: int) -> None:
        self.segment, self.least_remainder, self.end = segment, least_remainder, end
        self.free: list[Block] = []

    def spare_tail(self, at: int) -> int:
        """Return the index of the block to use instead of the one at this index, in expandable segments.

        The tail can grow without limit, so it counts as larger than any other block that fits.
        """
        block = self.free[at]
        is_tail = (block & ADDRESS_MASK) + (block >> ADDRESS_BITS) == self.end
        return at + 1 if is_tail and at + 1 < len(self.free) else at
