"""What a replay would have been had one thing been otherwise, simulated.

    PYTHONPATH=.:bench python bench/replayed_ways.py RUN.json WHOLE.json

RUN's jobs are simulated as bench/simulate_replayed.py does it, then with one thing changed. WHOLE is the run with whole
GPUs of the same hour; makespan and completion are relative to it, as it was replayed. Rows are medians of many draws.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simulate_replayed import DRAWS, Run, simulated

from slurm_plugin.admin.report.runs import run_record
from slurm_plugin.simulate.metrics import metrics

FIRST = 1_000_000
"""A priority that no other job of a replay has."""


def _with_jobs(change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Callable[[Run], Run]:
    return lambda run: {**run, "jobs": [{**job, **change(job)} for job in run["jobs"]]}


def _booked(share: float) -> Callable[[Run], Run]:
    """Return what makes jobs book less, no less than they use."""
    return _with_jobs(lambda job: {"booked_mib": max(job["peak_mib"], round(share * job["booked_mib"]))})


WAYS: Mapping[str, Callable[[Run], Run]] = {
    "as it was": lambda run: run,
    "two-GPU jobs first": _with_jobs(lambda job: {"priority": FIRST if job["gpus"] > 1 else 0}),
    "twice the `bf_min_age_reserve`": lambda run: {**run, "min_age_reserve_s": 2 * run["min_age_reserve_s"]},
    "0.9 of what was booked": _booked(0.9),
    "0.8 of what was booked": _booked(0.8),
}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("whole", type=Path)
    options = parser.parse_args()
    run, whole = (run_record(path) for path in (options.run, options.whole))
    print("| | makespan (s) | makespan | completion | slowdown | P95 |\n|---|---|---|---|---|---|")
    _print("replayed", run["figures"], whole)
    for name, way in WAYS.items():
        draws = [metrics(simulated(way(run), whole, draw)) for draw in range(DRAWS)]
        _print(f"simulated: {name}", _medians(draws), whole)


def _medians(draws: list[dict[str, Any]]) -> dict[str, float]:
    names = ("makespan_s", "mean_completion_s", "median_slowdown", "p95_slowdown")
    return {name: statistics.median(draw[name] for draw in draws) for name in names}


def _print(name: str, found: Mapping[str, float], whole: Run) -> None:
    makespan, completion = (
        found[figure] / whole["figures"][figure] for figure in ("makespan_s", "mean_completion_s")
    )
    print(
        f"| {name} | {found['makespan_s']:.0f} | {makespan:.2f} | {completion:.2f} "
        f"| {found['median_slowdown']:.1f} | {found['p95_slowdown']:.1f} |"
    )


if __name__ == "__main__":
    main()
