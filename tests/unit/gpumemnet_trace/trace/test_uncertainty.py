"""Kinds of doubt that widen a trace's bound: by how much, and in which words."""

from __future__ import annotations

import pytest

from gpumemnet.tracing.trace.result import quantile_bytes
from gpumemnet.tracing.trace.uncertainty import KINDS, MOST_GROWTH, growth, widened
from gpumemnet.units import GIB, MIB


@pytest.mark.parametrize(
    ("sizes", "unread_times", "least", "most"),
    [
        ([], 10.0, 0.0, 0.0),
        ([7], 10.0, 0.0, 0.0),
        ([70, 70, 70], 10.0, 0.0, 0.0),
        ([35, 70, 140], 0.0, 0.0, 0.0),  # all were read
        ([35, 70, 140, 140], 10.0, 0.99, MOST_GROWTH),
        ([70, 66, 74, 71, 69, 70], 10.0, 0.05, 0.2),
        ([*range(100, 200), 300], 1.0, 0.05, 0.1),
        ([*range(100, 200), 300], 100.0, 0.4, 0.6),
    ],
)
def test_unread_sizes_may_exceed_the_largest_by_what_the_read_ones_vary(
    sizes: list[int], unread_times: float, least: float, most: float
) -> None:
    assert least <= growth(sizes, unread_times) <= most


def test_each_kind_that_applies_adds_its_share_and_a_sentence() -> None:
    extra, notes = widened(["branches"], reserved_bytes=GIB, growing_bytes=100 * MIB, growing=0.5)
    assert extra == int(0.09 * GIB) + 50 * MIB
    assert notes == (
        "the bound is 92 MiB higher for branches whose side was guessed",
        "the bound is 50 MiB higher for inputs of changing size",
    )
    assert widened([], reserved_bytes=GIB, growing_bytes=GIB, growing=0.0) == (0, ())
    assert all(kind.source and kind.share > 0 for kind in KINDS.values())


def test_further_doubt_rises_with_the_share_of_jobs_up_to_all_of_it() -> None:
    plain, wider = quantile_bytes(GIB, 0), quantile_bytes(GIB, 0, further_bytes=GIB)
    extra = [more - less for (_, less), (_, more) in zip(plain, wider, strict=True)]
    assert extra == sorted(extra) and abs(extra[-1] - GIB) <= 1
