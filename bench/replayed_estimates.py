"""How near estimates came to what replayed jobs held.

    PYTHONPATH=. python bench/replayed_estimates.py RUN.json

A row for each workload of a run with RAD's own estimates, the furthest off first; below, the median and the largest
error of all, each workload counted once. Peaks are what NVML shows of the job's process, context and all.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slurm_plugin.admin.report.runs import run_record

ESTIMATE = re.compile(r"\bestimate_mib=(\d+)")


def rows(run: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield each workload, its estimate and the highest peak that one of its jobs had, in MiB.

    Args:
        run: A replay's result.
    """
    estimates: dict[str, int] = {}
    peaks: dict[str, int] = {}
    for job in run["jobs"]:
        told = ESTIMATE.search(job["admin_comment"])
        if told and job["peak_mib"]:
            name = job["workload"]
            estimates.setdefault(name, int(told.group(1)))  # later ones are learned from earlier runs
            peaks[name] = max(peaks.get(name, 0), job["peak_mib"])
    yield from ((name, estimates[name], peaks[name]) for name in estimates)


def main() -> None:
    """Print the table."""
    run = run_record(Path(sys.argv[1]))
    found = sorted(rows(run), key=lambda row: -abs(row[1] / row[2] - 1))
    print("| workload | estimate (MiB) | peak | error |\n|---|---|---|---|")
    for name, estimate, peak in found:
        print(f"| {name} | {estimate} | {peak} | {estimate / peak - 1:+.1%} |")
    errors = [abs(estimate / peak - 1) for _, estimate, peak in found]
    print(
        f"\n{len(found)} workloads: median {statistics.median(errors):.1%}, largest {max(errors):.1%}; "
        f"above what they booked: {sum(job['peak_mib'] > job['booked_mib'] for job in run['jobs'])}"
    )


if __name__ == "__main__":
    main()
