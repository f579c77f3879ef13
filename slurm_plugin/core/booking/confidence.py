"""How much of an uncertain need is booked: at a chosen confidence, or where it costs least.

A job that books less than it needs loses a part of its run and is run again with more. A job that books more than it
needs keeps others waiting. Both are memory times time, so booking for some share of jobs is cheapest: `confidence =
"auto"`.

Costs are told in bytes held for the time of one run. They leave out that a job may go past its booking, up to its cap,
while nobody needs the memory; so a miss really costs less than is counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_plugin.core.records.submission import LEAST_CONFIDENCE, MOST_CONFIDENCE, Confidence, MemoryEstimate
from slurm_plugin.core.units import GIB, shards_for

Recovers = Literal["exclusive", "escalate", "off"]
Points = Sequence[tuple[float, int]]

_BETWEEN = (0.6, 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995)
SHARES = (LEAST_CONFIDENCE, *_BETWEEN, MOST_CONFIDENCE)
"""The shares of jobs at which an estimate tells its quantiles; what lies between is rounded up."""

LOST_OF_A_RUN = 0.03
"""Of a run that misses, before it fails. Assumed: of 5,850 recorded runs nearly all had reached their peak in the first
two steps (`bench/estimator/settled.py`); start-up and the wait for the rerun count, too."""

MOST_SURPRISE = 2.0
"""A cap is at most so many bookings, whatever the bound: nobody gets much more than he booked."""

ESCALATION_MARGIN_BYTES = 5 * GIB
"""What the thesis adds to observed peak and failed allocation (section 7.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a miss costs on the cards of a partition.

    Attributes:
        usable_bytes: Memory of one GPU that jobs can have.
        shard_bytes: What one shard stands for.
        recovery: What happens to a job that needs more than it books.
    """

    usable_bytes: int
    shard_bytes: int
    recovery: Recovers

    def booked(self, n_bytes: int) -> int:
        """Return what a job of this need takes of the card: whole shards, or all of it."""
        return min(shards_for(n_bytes, self.shard_bytes) * self.shard_bytes, self.usable_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of one process' booking.

    Attributes:
        booked_bytes: What is booked.
        cap_bytes: What it may hold at most; never less.
        share: Share of jobs for which the booking is enough; None if nothing tells.
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
    card: Card,
) -> Size:
    """Return what a job of this estimate books, and its cap.

    A user may be safer than the site, and pays for it. One who books less than the site would is capped at what he
    books: else he would have the same memory for fewer shards.

    Args:
        estimate: What it is expected to need.
        site: The partition's `confidence`.
        user: What the user asked for; None if nothing.
        card: What a miss costs.
    """
    ours = _at(estimate, site, card)
    cap_bytes = min(estimate.upper_bytes, int(ours[1] * MOST_SURPRISE))
    if user is None:
        return Size(booked_bytes=ours[1], cap_bytes=max(cap_bytes, ours[1]), share=ours[0])
    theirs = _at(estimate, user, card)
    if theirs[1] < ours[1]:
        return Size(booked_bytes=theirs[1], cap_bytes=theirs[1], share=theirs[0], by_user=True)
    return Size(booked_bytes=theirs[1], cap_bytes=max(cap_bytes, theirs[1]), share=theirs[0])


def _at(estimate: MemoryEstimate, confidence: Confidence, card: Card) -> tuple[float | None, int]:
    if confidence == "bound" or not estimate.quantiles:
        return estimate.confidence, estimate.upper_bytes
    if confidence == "auto":
        return cheapest(
            estimate.quantiles,
            bound=(estimate.confidence or MOST_CONFIDENCE, estimate.upper_bytes),
            card=card,
        )
    return next((point for point in estimate.quantiles if point[0] >= confidence), estimate.quantiles[-1])


def cheapest(points: Points, *, bound: tuple[float, int], card: Card) -> tuple[float, int]:
    """Return the point that costs least to book; of equals the safest.

    Args:
        points: Shares of jobs and the bytes that so many stay under, both rising.
        bound: The same for the bound, which is never exceeded by choice, and booked where nobody runs a job again.
        card: What a miss costs.
    """
    if card.recovery == "off":
        return bound
    within = [point for point in points if point[1] <= bound[1]] or [bound]
    return min(within, key=lambda point: (cost_of(point, points, card=card), -point[0]))


def cost_of(point: tuple[float, int], points: Points, *, card: Card) -> float:
    """Return the bytes, times the time of one run, that booking at a point costs on average.

    Args:
        point: Share of jobs and bytes booked.
        points: The whole distribution of the need.
        card: What a miss costs.
    """
    share, n_bytes = point
    held = card.booked(n_bytes)
    return share * held + (1 - share) * (LOST_OF_A_RUN * held + _rerun_bytes(point, points, card))


def _rerun_bytes(point: tuple[float, int], points: Points, card: Card) -> float:
    """Return what the rerun of a job that missed holds on average."""
    if card.recovery == "exclusive":
        return card.usable_bytes
    above = [other for other in points if other[0] > point[0]]
    shares = [point[0], *(share for share, _ in above)]
    # Between two points the need is taken to be that of the upper one.
    parts = [
        (after - before, n_bytes)
        for before, after, (_, n_bytes) in zip(shares, shares[1:], above, strict=False)
    ]
    parts.append((1 - shares[-1], card.usable_bytes))
    weight = sum(part for part, _ in parts)
    return sum(part * card.booked(n_bytes + ESCALATION_MARGIN_BYTES) for part, n_bytes in parts) / weight
