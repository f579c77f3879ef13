"""How much memory holds which share of jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumemnet.estimate import Quantiles

CURVE = Quantiles(points=((0.5, 1000), (0.9, 1100), (0.99, 1400)))


def test_points_are_answered_as_they_are() -> None:
    assert [CURVE.at(share) for share in (0.5, 0.9, 0.99)] == [1000, 1100, 1400]


def test_between_points_bytes_follow_the_logarithm_of_the_share_above() -> None:
    assert CURVE.at(1 - 0.1**1.5) == pytest.approx(1250, abs=1)


def test_outside_the_points_the_nearest_answers() -> None:
    assert (CURVE.at(0.1), CURVE.at(0.9999)) == (1000, 1400)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 2.0, float("nan")])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        CURVE.at(share)


@pytest.mark.parametrize("points", [(), ((0.9, 1), (0.5, 2)), ((0.5, 2), (0.9, 1)), ((0.5, 1), (0.5, 2))])
def test_a_curve_that_does_not_rise_is_refused(points: tuple[tuple[float, int], ...]) -> None:
    with pytest.raises(ValueError, match="rise"):
        Quantiles(points=points)


@given(
    sizes=st.lists(st.integers(1, 1 << 42), min_size=2, max_size=6),
    shares=st.lists(st.floats(0.5, 0.999), min_size=2, max_size=10),
)
def test_a_larger_share_never_needs_less(sizes: list[int], shares: list[float]) -> None:
    levels = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
    curve = Quantiles(points=tuple(zip(levels, sorted(sizes), strict=False)))
    answers = [curve.at(share) for share in sorted(shares)]
    assert answers == sorted(answers)
    assert min(sizes) <= answers[0] <= answers[-1] <= max(sizes)
