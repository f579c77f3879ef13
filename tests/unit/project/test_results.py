"""The tables of docs/results.md are those of the recorded replays."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from paths import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "bench"))

from replay.report.runs import run_record

REPLAYS = CHECKOUT / "docs" / "results" / "replay"
SHARES = "share_multi_gpu=true-pass4h"
ONE_SERVER = "share_multi_gpu=true-mps_server=gpu-pass4h"
TABLES = {
    "philly_t1, two H200s": (
        ("philly_t1-whole-c160-r1", "philly_t1-whole-c160-r2"),
        ("philly_t1-hand-mps-c160-r1",),
        (f"philly_t1-magm-rad-c160-{SHARES}-r1", f"philly_t1-magm-rad-c160-{SHARES}-r2"),
    ),
    "mix90, two H100s": (
        ("mix90-whole-c180-first70-nccl-r1", "mix90-whole-c180-first70-nccl-r2"),
        ("mix90-hand-mps-c180-first70-pass4h-nccl-r1",),
        (
            f"mix90-magm-rad-c180-first70-{SHARES}-nccl-r1",
            f"mix90-magm-rad-c180-first70-{SHARES}-nccl-r2",
        ),
    ),
    "heavy60, two H200s": (("heavy60-whole-c180-r1",), (), (f"heavy60-magm-rad-c180-{SHARES}-r1",)),
    "heavy60, two H100s": (
        ("heavy60-whole-c200-nccl-r1",),
        (),
        (f"heavy60-magm-rad-c200-{SHARES}-nccl-r1",),
    ),
    "philly_t1, six users": (
        ("philly_t1-whole-c180-users6-nccl-r1", "philly_t1-whole-c180-users6-nccl-r2"),
        ("philly_t1-hand-mps-c180-pass4h-users6-nccl-r1", "philly_t1-hand-mps-c180-pass4h-users6-nccl-r2"),
        (
            f"philly_t1-magm-rad-c180-{SHARES}-users6-nccl-r1",
            f"philly_t1-magm-rad-c180-{SHARES}-users6-nccl-r2",
            f"philly_t1-magm-rad-c180-{SHARES}-users6-nccl-r3",
        ),
        (
            f"philly_t1-magm-rad-c180-{ONE_SERVER}-users6-nccl-r1",
            f"philly_t1-magm-rad-c180-{ONE_SERVER}-users6-nccl-r2",
        ),
    ),
    "mix90, six users": (
        ("mix90-whole-c180-first70-users6-nccl-r1",),
        (),
        (f"mix90-magm-rad-c180-first70-{SHARES}-users6-nccl-r1",),
        (f"mix90-magm-rad-c180-first70-{ONE_SERVER}-users6-nccl-r1",),
    ),
    "heavy60, six users": (
        ("heavy60-whole-c200-nccl-r1",),
        (),
        (f"heavy60-magm-rad-c200-{SHARES}-users6-nccl-r1",),
        (),
    ),
    "philly_t1, one H100": (
        ("philly_t1-whole-g1-c200-first32-r1",),
        ("philly_t1-hand-mps-g1-c200-first32-pass4h-r1",),
        ("philly_t1-magm-rad-g1-c200-first32-pass4h-r1",),
    ),
    "mix90, one H100": (
        ("mix90-whole-g1-c200-first40-r1",),
        ("mix90-hand-mps-g1-c200-first40-pass4h-r1",),
        ("mix90-magm-rad-g1-c200-first40-pass4h-r1",),
    ),
    "heavy60, one H100": (
        ("heavy60-whole-g1-c200-first24-r1",),
        ("heavy60-hand-mps-g1-c200-first24-pass4h-r1", "heavy60-hand-mps-g1-c200-first24-pass4h-r2"),
        ("heavy60-magm-rad-g1-c200-first24-pass4h-r1", "heavy60-magm-rad-g1-c200-first24-pass4h-r2"),
    ),
}
"""Trace and setting -> the runs with whole GPUs, shards by hand, RAD, and RAD with one MPS server a GPU."""


def figures(names: Sequence[str]) -> list[dict[str, Any]]:
    return [run_record(REPLAYS / f"{name}.json.xz")["figures"] for name in names]


def value(runs: list[dict[str, Any]], key: str, unit: str, whole: list[dict[str, Any]]) -> str:
    """Return a cell: the mean, half the range of several runs where that is not nothing, the share of whole GPUs."""
    found = [run[key] / (1000 if unit == "kJ" else 1) for run in runs]
    if not found:
        return ""
    half = f"{(max(found) - min(found)) / 2:.0f}"
    reported = f"{statistics.mean(found):.0f}{'' if half == '0' else f' ± {half}'} {unit}"
    if runs is whole:
        return reported
    return f"{reported} ({statistics.mean(run[key] for run in runs) / statistics.mean(run[key] for run in whole):.2f})"


def slowdown(runs: list[dict[str, Any]]) -> str:
    keys = ("median_slowdown", "p95_slowdown") if runs else ()
    return ", ".join(f"{statistics.mean(run[key] for run in runs):.1f}" for key in keys)


def shown() -> dict[str, list[list[str]]]:
    """Return the rows of the page by trace and setting, without their titles and marks."""
    tables: dict[str, list[list[str]]] = {}
    setting, rows = "", None
    for line in (CHECKOUT / "docs" / "results.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            names = {"## Six users on two H100s": ", six users", "## One H100, jobs of one GPU": ", one H100"}
            setting, rows = names.get(line, ""), None
        title, *cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        if title.endswith(": makespan"):
            rows = tables.setdefault(title.removesuffix(": makespan").replace("**", "") + setting, [])
        if rows is not None and len(cells) in (3, 4):
            rows.append([title.rpartition(": ")[2], *cells])
    return tables


def test_every_table_is_known() -> None:
    assert shown().keys() == TABLES.keys()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_that_of_its_runs(name: str) -> None:
    columns = [figures(names) for names in TABLES[name]]
    whole = columns[0]
    wanted = {
        "makespan": [value(runs, "makespan_s", "s", whole) for runs in columns],
        "mean completion": [value(runs, "mean_completion_s", "s", whole) for runs in columns],
        "energy": [value(runs, "energy_j", "kJ", whole) for runs in columns],
        "slowdown, median and P95": [slowdown(runs) for runs in columns],
    }
    found = {title: cells for title, *cells in shown()[name]}
    assert found == {title: wanted[title] for title in found}
    assert set(wanted) - set(found) <= {"energy"}


def ratio(names: Sequence[str], whole: Sequence[str], key: str) -> float:
    return statistics.mean(run[key] for run in figures(names)) / statistics.mean(
        run[key] for run in figures(whole)
    )


@pytest.mark.parametrize(
    ("key", "aim", "to"), [("mean_completion_s", 0.20, ""), ("energy_j", 0.72, " elsewhere")]
)
def test_the_aims_have_the_range_of_their_runs(key: str, aim: float, to: str) -> None:
    page = (CHECKOUT / "docs" / "results.md").read_text(encoding="utf-8")
    found = [ratio(names, columns[0], key) for columns in TABLES.values() for names in columns[2:] if names]
    met, missed = [each for each in found if each <= aim], [each for each in found if each > aim]
    assert f": {min(met):.2f} to {max(met):.2f}; **missed**{to}" in page
    assert f": {min(missed):.2f} to {max(missed):.2f} |" in page


def test_the_setting_for_jobs_of_two_gpus_is_measured_by_the_same_baseline() -> None:
    whole, _, shared = TABLES["philly_t1, two H200s"]
    alone = ratio(["philly_t1-magm-rad-c160-pass4h-r1"], whole, "makespan_s")
    together = ratio(shared, whole, "makespan_s")
    page = (CHECKOUT / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"is {alone:.2f} where jobs of two GPUs keep GPUs to themselves, {together:.2f} where they" in page


@pytest.mark.parametrize("name", TABLES)
def test_no_job_ran_out_of_memory_or_was_lost(name: str) -> None:
    runs = [run for names in TABLES[name] for run in figures(names)]
    assert [run["crashes"] + run["jobs"] - run["ended_well"] for run in runs] == [0] * len(runs)
