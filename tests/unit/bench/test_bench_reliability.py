"""The tables of docs/measurements/2026-11-faults.md come from rows, and from nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "faults"))
from reliability import PAGE, attempt_table, fault_table, put_in

ROW = {
    "fault": "radd killed",
    "slurm": "22.05.8",
    "jobs": 10,
    "lost": 1,
    "lost_alone": 2,
    "double_booked": 3,
    "double_booked_alone": 4,
    "samples": 50,
    "drained": 0,
    "leftovers": 5,
    "median_s": 0.5,
    "longest_s": 18.0,
}


def test_the_last_row_of_a_fault_counts_and_versions_stand_together() -> None:
    rows = [ROW, {**ROW, "slurm": "24.11.5"}, {**ROW, "fault": "other"}, {**ROW, "lost": 0}]
    lines = fault_table(rows).splitlines()[2:]
    assert [line.split(" | ")[1:4] for line in lines] == [
        ["22.05.8", "10", "0 (2)"],
        ["24.11.5", "10", "1 (2)"],
        ["22.05.8", "10", "1 (2)"],
    ]


def test_attempts_are_counted_as_tried_and_won() -> None:
    rows = [
        {"attempt": "a stamp", "won": False, "slurm": "22.05.8", "run": 2},
        {"attempt": "a stamp", "won": True, "slurm": "22.05.8", "run": 2},
        {"attempt": "a link", "won": False, "slurm": "22.05.8", "run": 2},
        {"attempt": "a link", "won": True, "slurm": "22.05.8", "run": 1},
    ]
    assert attempt_table(rows).splitlines()[2:] == ["| a stamp | 2, **1** |", "| a link | 1, 0 |"]


def test_a_page_without_marks_is_said() -> None:
    with pytest.raises(ValueError, match="no marks"):
        put_in("nothing", "faults", "table")
    assert put_in(PAGE.read_text(), "faults", "x").count("<!-- faults -->") == 1
