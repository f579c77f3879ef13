"""Memory over the last traced step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumemnet.errors import TraceError
from gpumemnet.tracing.trace.course import MAX_POINTS, course_of, from_text, to_text

STEP = [(1, 30), (2, 20), (1, None), (3, 5), (3, None), (2, None)]
"""Forward makes 1 and 2, backward frees 1, the optimizer borrows 3; then 2 goes."""


def phases(at: int) -> list[tuple[int, str]]:
    return [(at, "forward"), (at + 2, "backward"), (at + 3, "optimizer"), (at + 5, "forward")]


def test_the_last_step_alone_is_shown() -> None:
    events = [(0, 100), *STEP, *STEP]
    course = course_of(events, [*phases(1), *phases(7)])
    assert course.level_bytes == (120, 100, 130, 150, 120, 125, 120)
    assert course.starts == (0, 3, 4)
    assert course.kept_bytes == 100


def test_two_optimizers_are_one_step() -> None:
    marks = [
        (0, "forward"),
        (1, "optimizer"),
        (1, "forward"),
        (2, "optimizer"),
        (2, "forward"),
        (3, "optimizer"),
    ]
    marks += [(3, "forward"), (4, "optimizer"), (4, "forward")]
    course = course_of([(1, 1), (2, 2), (3, 4), (4, 8)], marks, optimizers=2)
    assert course.level_bytes == (3, 7, 15)


def test_without_a_step_there_is_no_course() -> None:
    with pytest.raises(TraceError, match="no optimizer took a step"):
        course_of([(1, 1)], [(0, "forward")])


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=3 * MAX_POINTS))
def test_whatever_its_length_the_peak_stays_and_it_is_read_as_written(sizes: list[int]) -> None:
    events = [event for key, size in enumerate(sizes) for event in ((key, size), (key, None))]
    course = course_of(events, [(0, "forward"), (len(sizes), "backward"), (2 * len(sizes), "optimizer")])
    assert max(course.level_bytes) == max(sizes)
    assert len(course.level_bytes) <= MAX_POINTS
    assert from_text(to_text(course)) == course


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"level_bytes": [1], "starts": [0, 0, 5], "kept_bytes": 0}', '{"level_bytes": ["a"]}'],
)
def test_what_a_script_wrote_in_its_place_is_refused(text: str) -> None:
    with pytest.raises(TraceError, match="no course of memory"):
        from_text(text)
