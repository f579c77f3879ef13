"""What counts of earlier runs: any raises a booking, only representative ones lower it, and never below a floor."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.history.observed import (
    AT_LIMIT,
    LEAST_RUN_S,
    LEAST_SMACT,
    SEVERAL,
    ObservedPeaks,
    ObservedRuns,
    floor_of,
    is_representative,
    with_runs,
)
from slurm_plugin.core.history.runs import Run, bound_of
from slurm_plugin.core.records.submission import MemoryEstimate
from slurm_plugin.core.units import GIB

RUN = Run(
    user_id=1000, profile_key="ab", peak_bytes=10 * GIB, start_s=100.0, time_s=100.0 + LEAST_RUN_S, smact=0.5
)
ESTIMATE = MemoryEstimate(
    estimate_bytes=10 * GIB,
    upper_bytes=20 * GIB,
    confidence=0.99,
    source="rad",
    quantiles=tuple((share, (10 + number // 2) * GIB) for number, share in enumerate(SHARES)),
    profile_key="ab",
)


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"smact": None}, True),
        ({"smact": None, "mean_smact": LEAST_SMACT}, True),
        ({"time_s": 99.0 + LEAST_RUN_S}, False),
        ({"time_s": None}, False),
        ({"start_s": None}, False),
        ({"start_s": float("nan")}, False),
        ({"smact": 0.0}, False),
        ({"smact": None, "mean_smact": 0.0}, False),
        ({"smact": float("nan")}, False),
    ],
    ids=str,
)
def test_what_is_representative(changes: dict[str, float | None], counts: bool) -> None:
    assert is_representative(replace(RUN, **changes)) == counts  # type: ignore[arg-type]


def test_a_short_run_lowers_nothing_and_a_long_one_does_as_far_as_the_estimate_makes_likely() -> None:
    assert floor_of(ESTIMATE) == 5 * GIB
    for runs, peak_gib, booked_gib in (
        (0, 6, None),
        (1, 6, 6),
        (1, 4, None),
        (SEVERAL - 1, 4, None),
        (SEVERAL, 4, 5),
    ):
        found = with_runs(ESTIMATE, ObservedRuns(peak_bytes=peak_gib * GIB, runs=runs))
        if booked_gib is None:
            assert found == ESTIMATE
        else:
            assert (found.source, found.estimate_bytes) == ("history", booked_gib * GIB)
            assert found.upper_bytes == bound_of(booked_gib * GIB)


def test_a_short_run_raises_what_is_booked() -> None:
    found = with_runs(ESTIMATE, ObservedRuns(peak_bytes=12 * GIB))
    assert (found.estimate_bytes, found.upper_bytes, found.source) == (12 * GIB, 20 * GIB, "rad")
    assert all(n_bytes >= bound_of(12 * GIB) for _, n_bytes in found.quantiles)
    found = with_runs(ESTIMATE, ObservedRuns(peak_bytes=30 * GIB))
    assert (found.estimate_bytes, found.upper_bytes, found.source) == (
        30 * GIB,
        bound_of(30 * GIB),
        "history",
    )
    assert found.confidence is None


@given(
    estimate=st.integers(1, 100),
    more=st.integers(0, 100),
    peak=st.integers(1, 300),
    runs=st.integers(0, 5),
)
def test_no_booking_is_below_what_was_seen_or_the_floor(
    estimate: int, more: int, peak: int, runs: int
) -> None:
    shipped = replace(
        ESTIMATE,
        estimate_bytes=estimate * GIB,
        upper_bytes=(estimate + more) * GIB,
        quantiles=tuple((share, int((estimate + more * share) * GIB)) for share in SHARES),
    )
    found = with_runs(shipped, ObservedRuns(peak_bytes=peak * GIB, runs=runs))
    points = [n_bytes for _, n_bytes in found.quantiles]
    assert points == sorted(points)
    assert all(found.estimate_bytes <= n_bytes <= found.upper_bytes for n_bytes in points)
    assert found.estimate_bytes >= max(peak * GIB, floor_of(shipped))
    if runs == 0:
        assert found.upper_bytes >= shipped.upper_bytes


def test_runs_of_other_users_and_other_setups_do_not_count() -> None:
    peaks = ObservedPeaks()
    for run in (
        RUN,
        replace(RUN, user_id=1001, peak_bytes=GIB),
        replace(RUN, profile_key="cd", peak_bytes=GIB),
    ):
        peaks.add(run)
    assert peaks.of(1000, "ab") == ObservedRuns(peak_bytes=10 * GIB, smact=0.5, runs=1)
    assert peaks.of(1002, "ab") is None and peaks.of(1000, "ef") is None


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
def test_what_processes_used_together_is_what_they_book_together(processes: int) -> None:
    peaks = ObservedPeaks()
    peaks.add(replace(RUN, smact=0.6, processes=processes))
    known = peaks.of(1000, "ab", processes=processes)
    assert known is not None and known.smact == round(0.6 / processes, 3)
    assert 10 * GIB <= processes * known.peak_bytes < 10 * GIB + processes
    assert peaks.of(1000, "ab", processes=processes + 1) is None


def test_what_allocates_all_of_its_limit_in_advance_does_not_book_more_after_each_run() -> None:
    observed, need = ObservedPeaks(), ESTIMATE
    for _ in range(2 * SEVERAL):
        limit_bytes = 2 * need.upper_bytes
        observed.add(replace(RUN, peak_bytes=int(limit_bytes * AT_LIMIT) + 1, cap_bytes=limit_bytes))
        seen = observed.of(1000, "ab")
        assert seen is not None and (seen.runs, seen.smact) == (0, 0.5)
        need = with_runs(ESTIMATE, seen)
        assert need == ESTIMATE
    observed.add(replace(RUN, peak_bytes=11 * GIB, cap_bytes=20 * GIB))
    observed.add(replace(RUN, peak_bytes=40 * GIB, cap_bytes=None))  # a whole GPU has no limit
    observed.add(replace(RUN, peak_bytes=41 * GIB, cap_bytes=20 * GIB))  # none was enforced
    seen = observed.of(1000, "ab")
    assert seen is not None and (seen.peak_bytes, seen.runs) == (41 * GIB, 3)
