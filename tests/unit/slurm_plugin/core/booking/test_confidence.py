from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.booking.confidence import MAX_OVERSHOOT, SHARES, size_of
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
        source="rad",
        quantiles=points,
    )
    return replace(row, **more)


ESTIMATES = st.lists(st.integers(MIB, 100 * GIB), min_size=len(SHARES) + 1, max_size=len(SHARES) + 1).map(
    lambda sizes: MemoryEstimate(
        estimate_bytes=min(sizes),
        upper_bytes=sorted(sizes)[-2],
        confidence=0.99,
        source="rad",
        quantiles=tuple(zip(SHARES, sorted(sizes)[1:], strict=True)),
    )
)
CHOICES = st.just("bound") | st.floats(SHARES[0], SHARES[-1])


@given(row=ESTIMATES, site=CHOICES, user=st.none() | CHOICES)
def test_no_user_gains_memory_that_he_does_not_book(
    row: MemoryEstimate, site: Confidence, user: Confidence | None
) -> None:
    rads = size_of(row, site=site)
    foreign = size_of(row, site=site, user=user)
    for size in (rads, foreign):
        assert (
            0
            < size.booked_bytes
            <= size.cap_bytes
            <= max(MAX_OVERSHOOT * size.booked_bytes, size.booked_bytes)
        )
    assert foreign.cap_bytes <= max(rads.cap_bytes, foreign.booked_bytes)
    if foreign.booked_bytes < rads.booked_bytes:
        assert (foreign.cap_bytes, foreign.by_user) == (foreign.booked_bytes, True)


@given(row=ESTIMATES, low=st.floats(SHARES[0], SHARES[-1]), more=st.floats(0, 0.4))
def test_a_safer_choice_never_books_less(row: MemoryEstimate, low: float, more: float) -> None:
    high = min(low + more, SHARES[-1])
    first, second = (size_of(row, site=share) for share in (low, high))
    assert first.booked_bytes <= second.booked_bytes
    assert first.share is not None and first.share >= low


def test_an_estimate_without_quantiles_books_its_bound() -> None:
    stated = estimate(quantiles=(), upper_bytes=3 * GIB, estimate_bytes=3 * GIB)
    for choice in ("bound", 0.5):
        size = size_of(stated, site=choice, user=choice)  # type: ignore[arg-type]
        assert (size.booked_bytes, size.cap_bytes, size.by_user) == (3 * GIB, 3 * GIB, False)


@pytest.mark.parametrize("share", SHARES)
def test_the_cap_is_the_bound_where_that_is_no_great_surprise(share: float) -> None:
    row = estimate()
    size = size_of(row, site=share)
    assert size.cap_bytes == max(row.upper_bytes, size.booked_bytes)


def test_a_share_that_the_estimate_shows_is_taken_as_it_is() -> None:
    size = size_of(estimate(), site=0.9)
    assert (size.booked_bytes, size.share) == (int(5 * GIB * 1.1), 0.9)
