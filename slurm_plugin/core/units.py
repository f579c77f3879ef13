"""Bytes, and the only place where they meet other units.

Memory is counted in bytes inside the project and carries its unit in its name at the edges (`_mib`). Slurm writes
K, M, G, T and means KiB, MiB, GiB, TiB; so do we when we read or write such a suffix.
"""

from __future__ import annotations

import re

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_SUFFIX = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": 1 << 40}
_SIZE = re.compile(r"^(\d{1,9}(?:\.\d{1,3})?)\s*([KMGT]?)(?:I?B)?$", re.IGNORECASE)


def parse_size(text: str, *, default_suffix: str = "M") -> int:
    """Return the bytes that a size such as "12G", "512M" or "12GiB" stands for.

    Args:
        text: Digits, at most three decimals, an optional suffix; G means GiB as in Slurm.
        default_suffix: What a bare number counts; Slurm's own default is M.

    Raises:
        ValueError: The text is no size, or the size is zero.

    >>> parse_size("12G") == 12 * GIB, parse_size("1.5G") == 1536 * MIB, parse_size("300") == 300 * MIB
    (True, True, True)
    """
    match = _SIZE.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write it like 12G or 512M")
    number, suffix = match.groups()
    n_bytes = round(float(number) * _SUFFIX[suffix.upper() or default_suffix])
    if n_bytes <= 0:
        raise ValueError(f"{text!r} is zero; write a size like 12G or 512M")
    return n_bytes


def to_mib(n_bytes: int) -> int:
    """Return bytes as whole MiB, rounded up: a booking never shrinks by rounding."""
    return -(-n_bytes // MIB)


def from_mib(mib: int) -> int:
    """Return MiB as bytes."""
    return mib * MIB


def shards_for(n_bytes: int, shard_bytes: int) -> int:
    """Return how many shards hold n_bytes; never less than one.

    >>> shards_for(0, GIB), shards_for(GIB, GIB), shards_for(GIB + 1, GIB)
    (1, 1, 2)
    """
    return max(1, -(-n_bytes // shard_bytes))


def human(n_bytes: int) -> str:
    """Return bytes for a person: "812 MiB", "12.3 GiB"."""
    return f"{n_bytes / GIB:.1f} GiB" if n_bytes >= GIB else f"{to_mib(n_bytes)} MiB"
