"""Blocks of the simulated caching allocator as single numbers, and its pools of free ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MIN_BLOCK_BYTES = 512
"""kMinBlockSize: every size is rounded up to a multiple of it."""

UNIT_BITS = MIN_BLOCK_BYTES.bit_length() - 1
"""Inside, sizes and addresses count units of 512 bytes: Python is faster with small numbers."""
ADDRESS_BITS = 40
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1
LARGE_POOL_ADDRESS = 1 << (ADDRESS_BITS - 1)
"""Addresses are made up: the two pools never meet, and the end of memory is 256 TiB away."""

Block = int
"""A piece of a segment, in one number: its size and, in the low bits, its address. Of two blocks the smaller, or among
equals the one of the lower address, is the smaller number: a sorted list of them is searched for the best fit."""


def size_of(block: Block) -> int:
    """Return a block's size in bytes."""
    return block >> ADDRESS_BITS << UNIT_BITS


def address_of(block: Block) -> int:
    """Return a block's made-up address in bytes."""
    return (block & ADDRESS_MASK) << UNIT_BITS


def joined(blocks: Iterable[Block | None]) -> Iterator[Block]:
    """Yield blocks by address, those that touch as one."""
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
    """Return how many units hold this many bytes."""
    return -(-n_bytes // MIN_BLOCK_BYTES)


@dataclass(eq=False)
class Pool:
    """The free blocks of one pool, smallest first, and the pool's rules.

    Attributes:
        segment: Units of the least segment asked of the driver.
        least_remainder: A block is split if at least this many units are left of it.
        end: Address below which the next segment lies; where an expandable one ends.
        free: The free blocks, in order.
    """

    segment: int
    least_remainder: int
    end: int
    free: list[Block] = field(default_factory=list)

    def spare_tail(self, at: int) -> int:
        """Return the place of the block to take instead of the one at this place, in expandable segments.

        The tail can grow without end, so it counts as larger than any other block that fits.
        """
        block = self.free[at]
        is_tail = (block & ADDRESS_MASK) + (block >> ADDRESS_BITS) == self.end
        return at + 1 if is_tail and at + 1 < len(self.free) else at
