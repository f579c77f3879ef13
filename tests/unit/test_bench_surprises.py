"""What replayed jobs above their bookings cost comes from the recorded runs, and the manual says what they show."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "bench"))
from replayed_estimates import rows
from replayed_surprises import COLUMNS, row

from slurm_plugin.admin.report.runs import run_name, run_record

REPLAYS = CHECKOUT / "docs" / "results" / "replay"
REPORTS = CHECKOUT / "docs" / "measurements"
SHARED = "magm-ours-c{}-share_multi_gpu=true-pass4h-r{}"
PAGE = {
    "philly_t1, whole GPUs": ("philly_t1-whole-c160-r1", "philly_t1-whole-c160-r2"),
    "philly_t1, shards by hand, MPS": ("philly_t1-hand-mps-c160-r1",),
    "philly_t1, RAD": (f"philly_t1-{SHARED.format(160, 1)}", f"philly_t1-{SHARED.format(160, 2)}"),
    "heavy60, RAD": (
        f"heavy60-{SHARED.format(180, 1)}",
        f"heavy60-{SHARED.format(200, 1).replace('-r', '-nccl-r')}",
    ),
    "mix90, shards by hand, MPS": ("mix90-hand-mps-c180-first70-pass4h-nccl-r1",),
    "mix90, RAD": tuple(
        f"mix90-magm-ours-c180-first70-share_multi_gpu=true-pass4h-nccl-r{n}" for n in (1, 2)
    ),
}
"""How a row of the page begins -> the recorded runs that it tells of."""


def counted(path: Path) -> dict[str, str]:
    return dict(zip(COLUMNS, row(run_name(path), run_record(path)), strict=True))


def job(slurm_id: int, peak_mib: int, state: str = "COMPLETED") -> dict[str, Any]:
    return {"slurm_id": slurm_id, "booked_mib": 4096, "peak_mib": peak_mib, "state": state}


def test_who_went_above_who_was_hurt_and_how_many_were_there_at_once() -> None:
    run = {
        "jobs": [job(1, 5000), job(2, 4000, "OUT_OF_MEMORY"), job(3, 4096)],
        "samples": {"cards": [{"jobs": [0, 1, 2]}, {"jobs": [1, 1, 0]}]},
        "logs": {
            "epilog.log": "at job=1 by overrun: above\nat job=2 by gpu-oom: full\nat job=9 by victim: x\n"
        },
        "figures": {"put_backs": 4},
    }
    found = dict(zip(COLUMNS, row("made up", run), strict=True))
    wanted = {"above": "1", "stopped": "1", "out": "1", "hurt": "1", "lost": "1", "put back": "4"}
    assert found == {"run": "made up", "jobs": "3", **wanted, "at once": "1.2", "at most": "2"}


@pytest.mark.parametrize("begins", PAGE)
def test_the_page_says_what_the_recorded_runs_come_to(begins: str) -> None:
    found = [counted(REPLAYS / f"{name}.json.xz") for name in PAGE[begins]]
    page = (REPORTS / "2026-11-booking.md").read_text()
    (line,) = [one for one in page.splitlines() if one.startswith(f"| {begins}")]
    _, crowd, *others = line.strip("| ").split(" | ")
    assert set(others) == {"0"}
    assert {
        run[column] for run in found for column in ("above", "stopped", "out", "hurt", "lost", "put back")
    } == {"0"}
    means, most = (part.split(" and ") for part in crowd.split(", "))
    assert {run["at once"] for run in found} == set(means)
    assert {run["at most"] for run in found} == set(most)


def test_each_workload_is_compared_once_with_the_estimate_before_its_first_run() -> None:
    told = {"workload": "vgg", "admin_comment": "rad: booked estimate_mib=900", "peak_mib": 1000}
    learned = told | {"admin_comment": "rad: booked estimate_mib=1010", "peak_mib": 1010}
    silent = told | {"workload": "dlrm", "admin_comment": ""}
    assert list(rows({"jobs": [told, learned, silent]})) == [("vgg", 900, 1010)]


H100 = {
    "philly_t1": ("g1-c200-first32", 1),
    "mix90": ("g1-c200-first40", 1),
    "heavy60": ("g1-c200-first24", 2),
}
"""Trace -> what its runs on one H100 are called, and which of RAD's the page tells of."""


MIX90, AGAIN, HEAVY60 = (
    "mix90-{}-c180-first70-{}nccl-r1",
    "mix90-{}-c180-first70-{}nccl-r2",
    "heavy60-{}-c200-{}nccl-r1",
)
SHARES, CALMER = "share_multi_gpu=true-pass4h-", "share_multi_gpu=true-compute_overcommit=1.75-pass4h-"
TWO_H100S = {
    "2026-11-mix90-two-h100s.md": (
        ("whole GPUs", MIX90.format("whole", "")),
        ("by hand, no MPS", MIX90.format("hand", "pass4h-")),
        ("by hand, MPS", MIX90.format("hand-mps", "pass4h-")),
        ("RAD", MIX90.format("magm-ours", SHARES)),
        ("RAD, `lug`", MIX90.format("lug-ours", SHARES)),
        ("RAD, `round_robin`", MIX90.format("round_robin-ours", SHARES)),
        ("RAD with Horus' estimates", MIX90.format("magm-horus", SHARES)),
    ),
    "2026-11-pairs-two-h100s.md": (
        ("mix90, whole GPUs", AGAIN.format("whole", "")),
        ("RAD", AGAIN.format("magm-ours", SHARES)),
        ("RAD, `compute_overcommit = 1.75`", AGAIN.format("magm-ours", CALMER)),
        ("heavy60, whole GPUs", HEAVY60.format("whole", "")),
        ("RAD", HEAVY60.format("magm-ours", SHARES)),
        ("RAD, `compute_overcommit = 1.75`", HEAVY60.format("magm-ours", CALMER)),
    ),
}
"""A report -> the columns of its table of figures, and the run of each."""


@pytest.mark.parametrize(
    "name",
    [f"{trace}-magm-ours-{runs}-pass4h-r{repetition}" for trace, (runs, repetition) in H100.items()]
    + [MIX90.format("magm-ours", SHARES), HEAVY60.format("magm-ours", SHARES)],
)
def test_the_page_says_how_near_estimates_came_on_the_h100(name: str) -> None:
    run = run_record(REPLAYS / f"{name}.json.xz")
    errors = [abs(estimate / peak - 1) for _, estimate, peak in rows(run)]
    reports = "\n".join(path.read_text() for path in REPORTS.glob("*.md"))
    lines = [one for one in reports.splitlines() if "bench/replayed_estimates.py" in one]
    median = f"{statistics.median(errors):.1%}".replace("%", " %")
    told = f"{len(errors)} workloads of {run['trace']} a median error of {median}"
    assert any(told in line for line in lines), told
    assert all(job["peak_mib"] <= job["booked_mib"] for job in run["jobs"]), "nobody above his booking"


@pytest.mark.parametrize("report", TWO_H100S)
def test_a_table_of_two_h100s_is_that_of_its_runs(report: str) -> None:
    found = [run_record(REPLAYS / f"{name}.json.xz")["figures"] for _, name in TWO_H100S[report]]
    section = (REPORTS / report).read_text().split("\n## Figures", 1)[1]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    table = {name.strip(): [cell.strip(" *") for cell in cells] for name, *cells in lines}
    assert table[""][: len(found)] == [column for column, _ in TWO_H100S[report]]
    for label, key, unit in (
        ("makespan (s)", "makespan_s", 1),
        ("mean completion (s)", "mean_completion_s", 1),
        ("energy (kJ)", "energy_j", 1000),
    ):
        shown, whole = [], 0.0
        for run, (column, _) in zip(found, TWO_H100S[report], strict=True):
            alone = column.endswith("whole GPUs")
            whole = run[key] if alone else whole
            shown.append(f"{run[key] / unit:.0f}" + ("" if alone else f" ({run[key] / whole:.2f})"))
        assert table[label][: len(found)] == shown
    slowdowns = [
        ", ".join(f"{run[key]:.1f}" for key in ("median_slowdown", "p95_slowdown", "max_slowdown"))
        for run in found
    ]
    assert table["slowdown: median, P95, largest"][: len(found)] == slowdowns
    assert {run["crashes"] + run["put_backs"] + run["jobs"] - run["ended_well"] for run in found} == {0}


@pytest.mark.parametrize("trace", H100)
def test_the_sms_have_the_same_work_whoever_shares(trace: str) -> None:
    """Which is why nobody can be much sooner than shards by hand there (docs/measurements/2026-11-one-h100.md)."""
    runs, repetition = H100[trace]
    policies = ("whole-{}-r1", f"hand-mps-{{}}-pass4h-r{repetition}", f"magm-ours-{{}}-pass4h-r{repetition}")
    names = [f"{trace}-{policy.format(runs)}" for policy in policies]
    found = [run_record(REPLAYS / f"{name}.json.xz")["figures"] for name in names]
    work_s = [run["smact_mean"] * run["makespan_s"] for run in found]
    assert max(work_s) < 1.02 * min(work_s)
    page = (REPORTS / "2026-11-one-h100.md").read_text()
    (line,) = [one for one in page.splitlines() if one.startswith("| SM activity times makespan (s)")]
    column = 3 * list(H100).index(trace)
    told = [cell.strip(" *") for cell in line.split("|")[2:-1]][column : column + 3]
    assert told == [f"{s:.0f}" for s in work_s]
