"""The tables of measured programs and settings come from the kept rows, and so do a trace's factors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from paths import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "bench" / "programs"))
sys.path.insert(0, str(CHECKOUT / "bench" / "settings"))
sys.path.insert(0, str(CHECKOUT / "bench" / "estimator"))
import benchmark_quantiles
import clone_sources
import lines
import program_tables
import settings_tables
from keep_rows import last, read, works

from gpumemnet.gpus import gpu_named
from gpumemnet.tracing.trace.result import BENCHMARK_FACTORS
from gpumemnet.units import MIB

RESULTS = CHECKOUT / "docs" / "results"
PROGRAMS = read(RESULTS / "programs.jsonl.xz")
SETTINGS = read(RESULTS / "settings.jsonl.xz")
H100 = gpu_named("h100")
REPORT = CHECKOUT / "docs" / "measurements" / "2026-11-programs.md"


def measured(**changes: Any) -> dict[str, Any]:
    row = {
        "kind": "measured",
        "script": "train.py",
        "ended": "stopped",
        "steps": 5,
        "process_peak_bytes": 9000 * MIB,
        "held_by_step_bytes": [n * MIB for n in (100, 900, 1000, 1100, 1200)],
        "outside_by_step_bytes": [700 * MIB] * 5,
    }
    return row | changes


def test_what_a_process_holds_after_trials_is_kept() -> None:
    (row,) = last([measured()])
    assert (row["held_bytes"], row["held_first_bytes"]) == (1200 * MIB, 1100 * MIB)
    assert program_tables.needed_bytes(row, benchmark=True) == 1900 * MIB
    assert program_tables.needed_bytes(row, benchmark=False) == 9000 * MIB


def test_a_later_row_replaces_an_earlier_one_unless_it_alone_fails() -> None:
    good, later, failed = measured(), measured(seconds=2, alone=True), measured(steps=0, ended="out of time")
    assert [row.get("alone") for row in last([good, later])] == [True]
    assert [works(row) for row in last([good, failed])] == [True]
    assert [row["ended"] for row in last([failed, failed | {"ended": "status 1"}])] == ["status 1"]


def test_rows_kept_earlier_stay_as_they_are() -> None:
    assert list(last(PROGRAMS)) == PROGRAMS


def test_every_program_has_its_repository_at_a_commit() -> None:
    folders = {each.folder for each in clone_sources.repositories()}
    listed = list(lines.read(CHECKOUT / "bench" / "programs" / "programs.txt"))
    assert listed
    assert {program_tables.repository(line.text) for line in listed} <= folders
    assert all(len(each.commit) == 40 for each in clone_sources.repositories())


def test_what_was_not_measured_says_so() -> None:
    row = next(row for row in PROGRAMS if "profile" in row)
    (found,) = program_tables.estimated([row], H100)
    assert "not measured" in list(program_tables.table([found]))[-1]
    assert program_tables.both([found]) == []


def test_a_program_shows_data_where_its_clone_has_some(tmp_path: Path) -> None:
    (tmp_path / "sources" / "net" / "data" / "cora").mkdir(parents=True)
    (tmp_path / "data" / "cora").mkdir(parents=True)
    (tmp_path / "data" / "cora" / "cora.content").write_text("made")
    (tmp_path / "run").mkdir()
    line = lines.parsed("cd net && train.py")
    work = lines.lay(line, tmp_path / "sources", tmp_path / "data", tmp_path / "run")
    assert (work / "data" / "cora" / "cora.content").read_text() == "made"
    assert (tmp_path / "run" / "home" / "data" / "cora" / "cora.content").read_text() == "made"


def test_a_program_that_grows_is_no_sign_of_trials() -> None:
    (row,) = last([measured()])
    assert benchmark_quantiles.grows(row)
    assert not benchmark_quantiles.grows(row | {"held_bytes": row["held_first_bytes"]})


def test_the_factors_are_those_of_the_kept_rows() -> None:
    found = list(benchmark_quantiles.runs([*SETTINGS, *PROGRAMS], H100))
    assert benchmark_quantiles.fitted(found) == BENCHMARK_FACTORS


def test_the_report_shows_what_the_kept_rows_come_to() -> None:
    shown = {" ".join(line.split()) for line in REPORT.read_text(encoding="utf-8").splitlines()}
    lines = [*program_tables.table(program_tables.estimated(PROGRAMS, H100))]
    for members in settings_tables.kinds(settings_tables.pairs(SETTINGS)).values():
        lines += settings_tables.table(members)
    lines += settings_tables.summary(settings_tables.pairs(SETTINGS))
    assert [line for line in (" ".join(each.split()) for each in lines) if line not in shown] == []


@pytest.mark.parametrize("rows", [PROGRAMS, SETTINGS], ids=["programs", "settings"])
def test_rows_name_where_they_were_measured(rows: list[dict[str, Any]]) -> None:
    good = [row for row in rows if row["kind"] == "measured" and works(row)]
    assert good and all("H100" in row["gpu"] and row["driver"] for row in good)
