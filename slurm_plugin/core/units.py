"""Bytes, and the only conversions to and from other units.

Memory is counted in bytes inside the project and carries its unit in its name at the edges (`_mib`). Slurm writes
K, M, G, T and means KiB, MiB, GiB, TiB; RAD reads and writes such suffixes in the same way.
"""

from __future__ import annotations

import re

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_SUFFIX = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": GIB * KIB}
_SIZE = re.compile(
    r"^(\d{1,15}|\d{1,3}(?:,\d{3}){1,5})(\.\d{1,6})?\s*([KMGT]?)(I?B|BYTES?)?$", re.IGNORECASE | re.ASCII
)
"""Thousands may be separated by commas, as some frameworks print them."""


def parse_size(text: str, *, default_suffix: str = "M") -> int:
    """Return the bytes that a size such as "12G", "512M", "12GiB" or "1,024 bytes" stands for.

    Args:
        text: A number with an optional suffix; G means GiB as in Slurm.
        default_suffix: Unit of a bare number; Slurm's default is M.

    Raises:
        ValueError: The text is not a size, or the size is zero.

    >>> parse_size("12G") == 12 * GIB, parse_size("1.5G") == 1536 * MIB, parse_size("300") == 300 * MIB
    (True, True, True)
    """
    match = _SIZE.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write it like 12G or 512M")
    whole, decimals, suffix, unit = match.groups()
    factor = _SUFFIX[suffix.upper() or ("" if unit else default_suffix)]
    n_bytes = round(float(whole.replace(",", "") + (decimals or "")) * factor)
    if n_bytes <= 0:
        raise ValueError(f"{text!r} is zero; write a size like 12G or 512M")
    return n_bytes


def printed_size(text: str | None) -> int | None:
    """Return the bytes of a size that a framework printed; a bare number is bytes. None if there is none.

    >>> printed_size("2.50 GiB") == 2560 * MIB, printed_size("1,024 bytes"), printed_size("20 MB") == 20 * MIB
    (True, 1024, True)
    """
    try:
        return parse_size(text or "", default_suffix="")
    except ValueError:
        return None


def to_mib_up(n_bytes: int) -> int:
    """Return bytes as whole MiB, rounded up: a booking never shrinks by rounding."""
    return -(-n_bytes // MIB)


def to_mib_down(n_bytes: int) -> int:
    """Return bytes as whole MiB, rounded down: what is promised must be there."""
    return n_bytes // MIB


def from_mib(mib: int) -> int:
    """Return MiB as bytes."""
    return mib * MIB


def shards_for(n_bytes: int, shard_bytes: int) -> int:
    """Return how many shards cover n_bytes; at least one.

    Args:
        n_bytes: Memory that a job needs.
        shard_bytes: Size of one shard.

    >>> shards_for(0, GIB), shards_for(GIB, GIB), shards_for(GIB + 1, GIB)
    (1, 1, 2)
    """
    return max(1, -(-n_bytes // shard_bytes))


_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_span(text: str) -> float:
    """Return a time span in seconds: a number and its unit, s, m, h or d.

    Raises:
        ValueError: It is not one.

    >>> parse_span("30m"), parse_span("1.5h")
    (1800.0, 5400.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise ValueError(f'{text!r} is no time span, such as "30m" or "2h"')
    return float(match[1]) * _SECONDS[match[2]]


def human(n_bytes: int) -> str:
    """Return bytes in readable form: "812 MiB", "12.3 GiB"."""
    return f"{n_bytes / GIB:.1f} GiB" if n_bytes >= GIB else f"{to_mib_up(n_bytes)} MiB"


def counted(count: float, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one.

    Args:
        count: The number.
        noun: A noun whose plural ends in s.

    >>> counted(1, "GPU"), counted(0, "job"), counted(1.5, "day"), counted(1_500_000, "run")
    ('1 GPU', '0 jobs', '1.5 days', '1500000 runs')
    """
    number = count if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun}{'s' * (count != 1)}"


def percentile(share: float) -> str:
    """Return a share of jobs as a percentile.

    Args:
        share: From 0.5 to 0.999.

    >>> percentile(0.95), percentile(0.91), percentile(0.975)
    ('95th percentile', '91st percentile', '97.5th percentile')
    """
    number = f"{share * 100:g}"
    ending = {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th") if number.isdigit() else "th"
    return f"{number}{ending} percentile"
