"""Joint memory bound of the jobs on a GPU: sum of estimates plus one pooled reserve for estimation error.

Estimates of different models err independently of each other, so not all jobs overshoot at once. The differences
between limits and estimates are added as independent errors are, by the root of the sum of squares. Copies of one model
err alike, and their differences add up linearly. The sum never exceeds that of the limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt

from gpumemnet.records import frozen
from slurm_plugin.core.records.node import Allocation


@frozen
class Share:
    """One job's part of a GPU.

    Attributes:
        expected_bytes: What it is expected to need, or uses already.
        most_bytes: Its limit; never less.
        model: Jobs of the same model err alike; None is no model, and errs independently.
    """

    expected_bytes: int
    most_bytes: int
    model: str | None = None

    @property
    def overshoot_bytes(self) -> int:
        """Return the possible overshoot: by how much it may exceed what is expected."""
        return self.most_bytes - self.expected_bytes


def share(
    booked_bytes: int,
    *,
    cap_bytes: int | None,
    estimate_bytes: int | None,
    model: str | None,
    touched_bytes: int = 0,
) -> Share:
    """Return the part that a job takes of a GPU.

    Args:
        booked_bytes: Its booking: the expected need of a job without an estimate; at a job's start never more is.
        cap_bytes: Its limit; None if that is the booking.
        estimate_bytes: The estimate; None if there is none.
        model: Its model; None if that is not known.
        touched_bytes: What it uses now, which is no longer uncertain.
    """
    guess_bytes = booked_bytes if estimate_bytes is None else min(estimate_bytes, booked_bytes)
    return Share(
        expected_bytes=max(guess_bytes, touched_bytes),
        most_bytes=max(booked_bytes, cap_bytes or 0, touched_bytes),
        model=model,
    )


def share_of(allocation: Allocation, touched_bytes: int = 0) -> Share:
    """Return the part that an allocation takes of a GPU.

    Args:
        allocation: The allocation.
        touched_bytes: What its job uses now.
    """
    return share(
        allocation.booked_bytes,
        cap_bytes=allocation.cap_bytes,
        estimate_bytes=allocation.estimate_bytes,
        model=allocation.profile_key,
        touched_bytes=touched_bytes,
    )


def pooled_bytes(shares: Iterable[Share]) -> int:
    """Return what jobs may need together.

    >>> one, other = Share(expected_bytes=5, most_bytes=8, model="a"), Share(expected_bytes=5, most_bytes=9, model="b")
    >>> pooled_bytes([one]), pooled_bytes([one, other]), pooled_bytes([one, one])
    (8, 15, 16)
    """
    shares = tuple(shares)
    squares = sum(each * each for each in _overshoots(shares).values())
    root = isqrt(squares)
    return sum(share.expected_bytes for share in shares) + root + (root * root < squares)


def widest(others: Iterable[Share], incoming: Share, usable_bytes: int) -> int | None:
    """Return the highest limit of an incoming job such that all jobs still fit; None if its expected need does not.

    Args:
        others: The jobs on the GPU.
        incoming: The incoming job.
        usable_bytes: Memory that all jobs together may use.
    """
    others = tuple(others)
    overshoots = _overshoots(others)
    alike = 0 if incoming.model is None else overshoots.pop(incoming.model, 0)
    left = usable_bytes - incoming.expected_bytes - sum(share.expected_bytes for share in others)
    spare = left * left - sum(each * each for each in overshoots.values())
    if left < 0 or spare < alike * alike:
        return None
    return min(incoming.most_bytes, incoming.expected_bytes + isqrt(spare) - alike)


def _overshoots(shares: Iterable[Share]) -> dict[object, int]:
    """Return the possible overshoot of the jobs of each model."""
    found: dict[object, int] = {}
    for number, share in enumerate(shares):
        model: object = number if share.model is None else share.model
        found[model] = found.get(model, 0) + share.overshoot_bytes
    return found
