"""Compute how much of an uncertain need is booked at a chosen confidence: a share of jobs, or the bound."""

from __future__ import annotations

from gpumemnet.records import frozen
from slurm_plugin.core.records.submission import LEAST_CONFIDENCE, MOST_CONFIDENCE, Confidence, MemoryEstimate
from slurm_plugin.core.units import GIB

_BETWEEN = (0.6, 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995)
SHARES = (LEAST_CONFIDENCE, *_BETWEEN, MOST_CONFIDENCE)
"""The shares of jobs at which an estimate gives its quantiles; values between are rounded up."""

MAX_OVERSHOOT = 2.0
"""A limit is at most this multiple of the booking, whatever the bound: no job gets much more than it booked."""

ESCALATION_MARGIN_BYTES = 5 * GIB
"""Margin that the thesis adds to observed peak and failed allocation (section 7.2)."""


@frozen
class Size:
    """The size of one process' booking.

    Attributes:
        booked_bytes: Booked memory.
        cap_bytes: The limit; never less than the booking.
        share: Share of jobs for which the booking is large enough; None if unknown.
        by_user: Whether the user chose to book less than the site would.
    """

    booked_bytes: int
    cap_bytes: int
    share: float | None
    by_user: bool = False


def size_of(
    estimate: MemoryEstimate,
    *,
    site: Confidence,
    user: Confidence | None = None,
) -> Size:
    """Return the booking and the limit of a job with this estimate.

    A user may choose a higher confidence than the site, and pays for it. If a user books less than the site would, the
    limit is the booking: otherwise the job would have the same memory for fewer shards.

    Args:
        estimate: The estimate of the job.
        site: The partition's `confidence`.
        user: The confidence that the user requested; None if none.
    """
    site_size = _at(estimate, site)
    cap_bytes = min(estimate.upper_bytes, int(site_size[1] * MAX_OVERSHOOT))
    if user is None:
        return Size(booked_bytes=site_size[1], cap_bytes=max(cap_bytes, site_size[1]), share=site_size[0])
    user_size = _at(estimate, user)
    if user_size[1] < site_size[1]:
        return Size(booked_bytes=user_size[1], cap_bytes=user_size[1], share=user_size[0], by_user=True)
    return Size(booked_bytes=user_size[1], cap_bytes=max(cap_bytes, user_size[1]), share=user_size[0])


def _at(estimate: MemoryEstimate, confidence: Confidence) -> tuple[float | None, int]:
    if confidence == "bound" or not estimate.quantiles:
        return estimate.confidence, estimate.upper_bytes
    return next((point for point in estimate.quantiles if point[0] >= confidence), estimate.quantiles[-1])
