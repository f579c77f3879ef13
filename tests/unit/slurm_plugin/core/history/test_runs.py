from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.history.runs import Run, from_line, to_line

TEXT = st.none() | st.text(max_size=40)
SIZE = st.none() | st.integers(0, 2**50)
RUNS = st.builds(
    Run,
    user_id=st.integers(0, 2**32),
    peak_bytes=SIZE,
    profile_key=TEXT,
    job_id=st.none() | st.integers(1, 2**31),
    restart=st.none() | st.integers(0, 99),
    time_s=st.none() | st.floats(0, 4e9),
    partition=TEXT,
    outcome=TEXT,
    estimate_bytes=SIZE,
    booked_bytes=SIZE,
    mean_smact=st.none() | st.floats(0, 1),
    gpus=st.lists(st.text(max_size=40), max_size=3).map(tuple),
)


@given(RUNS)
def test_a_run_read_back_is_the_same(run: Run) -> None:
    line = to_line(run)
    assert line.isascii() and b"\n" not in line
    assert from_line(line) == run


def test_the_form_of_a_line_is_the_documented_one() -> None:
    run = Run(
        user_id=1000,
        job_id=7,
        peak_bytes=2**31,
        profile_key="ab12",
        outcome="ok",
        time_s=1.5,
        gpus=("GPU-a",),
    )
    assert json.loads(to_line(run)) == {
        "user": 1000,
        "peak_bytes": 2**31,
        "job": 7,
        "profile": "ab12",
        "outcome": "ok",
        "time_s": 1.5,
        "gpus": ["GPU-a"],
    }


def test_lines_of_before_are_read_too() -> None:
    line = b'{"time_s": 1.5, "job": 7, "user": 1, "peak_bytes": null, "mean_smact": null, "gpus": [], "later": 3}'
    assert from_line(line) == Run(user_id=1, job_id=7, time_s=1.5)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"half a li",
        b"[]",
        b"{}",
        b"3",
        b'{"user":"x"}',
        b'{"user":1,"peak_bytes":1e999}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_damaged_lines_are_none(line: bytes) -> None:
    assert from_line(line) is None
