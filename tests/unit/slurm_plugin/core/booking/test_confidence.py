from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.booking.confidence import MOST_SURPRISE, SHARES, Card, cheapest, cost_of, size_of
from slurm_plugin.core.records.submission import Confidence, MemoryEstimate
from slurm_plugin.core.units import GIB, MIB

FACTORS = {
    0.5: 1.0,
    0.6: 1.02,
    0.7: 1.03,
    0.75: 1.04,
    0.8: 1.06,
    0.85: 1.07,
    0.88: 1.08,
    0.9: 1.1,
    0.92: 1.14,
    0.94: 1.2,
    0.95: 1.22,
    0.96: 1.25,
    0.97: 1.3,
    0.98: 1.36,
    0.99: 1.42,
    0.995: 1.6,
    0.999: 2.0,
}
"""Bytes over the estimate, about as 429 texts of held-out runs have them."""


def estimate(gib: float = 5.0, **more: Any) -> MemoryEstimate:
    points = tuple((share, int(gib * GIB * factor)) for share, factor in FACTORS.items())
    row = MemoryEstimate(
        estimate_bytes=points[0][1],
        upper_bytes=int(gib * GIB * FACTORS[0.99]),
        confidence=0.99,
        source="ours",
        quantiles=points,
    )
    return replace(row, **more)


def card(gib: int = 80, recovery: Any = "exclusive", shard: int = 256 * MIB) -> Card:
    return Card(usable_bytes=gib * GIB, shard_bytes=shard, recovery=recovery)


ESTIMATES = st.lists(st.integers(MIB, 100 * GIB), min_size=len(SHARES) + 1, max_size=len(SHARES) + 1).map(
    lambda sizes: MemoryEstimate(
        estimate_bytes=min(sizes),
        upper_bytes=sorted(sizes)[-2],
        confidence=0.99,
        source="ours",
        quantiles=tuple(zip(SHARES, sorted(sizes)[1:], strict=True)),
    )
)
CHOICES = st.sampled_from(["bound", "auto"]) | st.floats(SHARES[0], SHARES[-1])
CARDS = st.builds(
    card, st.integers(1, 200), st.sampled_from(["exclusive", "escalate", "off"]), st.sampled_from([MIB, GIB])
)


@given(row=ESTIMATES, site=CHOICES, user=st.none() | CHOICES, card=CARDS)
def test_no_user_gains_memory_that_he_does_not_book(
    row: MemoryEstimate, site: Confidence, user: Confidence | None, card: Card
) -> None:
    ours = size_of(row, site=site, card=card)
    theirs = size_of(row, site=site, user=user, card=card)
    for size in (ours, theirs):
        assert (
            0
            < size.booked_bytes
            <= size.cap_bytes
            <= max(MOST_SURPRISE * size.booked_bytes, size.booked_bytes)
        )
    assert theirs.cap_bytes <= max(ours.cap_bytes, theirs.booked_bytes)
    if theirs.booked_bytes < ours.booked_bytes:
        assert (theirs.cap_bytes, theirs.by_user) == (theirs.booked_bytes, True)


@given(row=ESTIMATES, low=st.floats(SHARES[0], SHARES[-1]), more=st.floats(0, 0.4), card=CARDS)
def test_a_safer_choice_never_books_less(row: MemoryEstimate, low: float, more: float, card: Card) -> None:
    high = min(low + more, SHARES[-1])
    first, second = (size_of(row, site=share, card=card) for share in (low, high))
    assert first.booked_bytes <= second.booked_bytes
    assert first.share is not None and first.share >= low


@given(row=ESTIMATES, card=CARDS)
def test_no_other_point_up_to_the_bound_costs_less_than_the_cheapest(row: MemoryEstimate, card: Card) -> None:
    bound = (0.99, row.upper_bytes)
    chosen = cheapest(row.quantiles, bound=bound, card=card)
    if card.recovery == "off":
        assert chosen == bound
        return
    least = cost_of(chosen, row.quantiles, card=card)
    others = [point for point in row.quantiles if point[1] <= row.upper_bytes]
    assert all(cost_of(point, row.quantiles, card=card) >= least for point in others)


def test_what_is_cheapest_depends_on_what_a_miss_costs() -> None:
    """As the held-out runs have it: the larger the card that a rerun takes, the safer; least safe where it shares."""
    points = estimate().quantiles
    bound = (0.99, estimate().upper_bytes)
    shares = [cheapest(points, bound=bound, card=card(gib))[0] for gib in (40, 80, 141)]
    assert shares == sorted(shares) and shares[0] >= 0.95
    assert cheapest(points, bound=bound, card=card(80, "escalate"))[0] < shares[0]
    assert cheapest(points, bound=bound, card=card(80, "off")) == bound


def test_within_one_shard_safety_costs_nothing() -> None:
    row = estimate(0.5)
    assert size_of(row, site="auto", card=card(shard=GIB)).booked_bytes == row.upper_bytes


def test_an_estimate_without_quantiles_books_its_bound() -> None:
    stated = estimate(quantiles=(), upper_bytes=3 * GIB, estimate_bytes=3 * GIB)
    for choice in ("auto", "bound", 0.5):
        size = size_of(stated, site=choice, user=choice, card=card())  # type: ignore[arg-type]
        assert (size.booked_bytes, size.cap_bytes, size.by_user) == (3 * GIB, 3 * GIB, False)


@pytest.mark.parametrize("share", SHARES)
def test_the_cap_is_the_bound_where_that_is_no_great_surprise(share: float) -> None:
    row = estimate()
    size = size_of(row, site=share, card=card())
    assert size.cap_bytes == max(row.upper_bytes, size.booked_bytes)


def test_what_a_miss_costs_is_a_part_of_a_run_and_a_gpu() -> None:
    points = ((0.5, 8 * GIB), (0.9, 10 * GIB))
    assert cost_of(points[1], points, card=card(80)) / GIB == pytest.approx(0.9 * 10 + 0.1 * (0.03 * 10 + 80))


def test_a_share_that_the_estimate_tells_is_taken_as_it_is() -> None:
    size = size_of(estimate(), site=0.9, card=card())
    assert (size.booked_bytes, size.share) == (int(5 * GIB * 1.1), 0.9)
