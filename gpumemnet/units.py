"""Byte units: memory is counted in bytes internally and written in MiB at the edges."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
MEGA = 10**6
"""Unit of counts other than bytes, such as multiply-adds."""


def to_mib_up(n_bytes: float) -> int:
    """Return bytes as whole MiB, rounded up, as needed for a bound.

    >>> to_mib_up(1), to_mib_up(MIB), to_mib_up(MIB + 1)
    (1, 1, 2)
    """
    return -int(-n_bytes // MIB)


def human(n_bytes: float) -> str:
    """Return bytes as text for a person.

    >>> human(812 * MIB), human(12.3 * GIB)
    ('812 MiB', '12.3 GiB')
    """
    return f"{n_bytes / GIB:.1f} GiB" if n_bytes >= GIB else f"{to_mib_up(n_bytes)} MiB"


def to_mib_nearest(n_bytes: float) -> int:
    """Return bytes as the nearest whole MiB."""
    return round(n_bytes / MIB)


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
