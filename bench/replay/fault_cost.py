"""Print what faults of some jobs cost the others: python -m replay.fault_cost FAULTY.json.xz WITHOUT.json.xz ...

FAULTY is a replay with `--faulty`, the others are the same without. A job's cost is its completion time in FAULTY less
its mean completion time in the others. Needs PYTHONPATH=bench:. as the other programs here.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from replay.report.runs import run_record

Row = Mapping[str, Any]


def completed_s(row: Row) -> float:
    """Return the time from a job's submission to its end, in seconds."""
    return float(row["runs"][-1]["end_s"] - row["submit_s"])


def costs_s(faulty: Sequence[Row], without: Sequence[Sequence[Row]]) -> dict[str, float]:
    """Return by how many seconds each job that is not at fault completed later, by its name.

    Args:
        faulty: Jobs of the replay with faults.
        without: Those of each replay without.
    """
    base = [{row["name"]: completed_s(row) for row in rows} for rows in without]
    return {
        row["name"]: completed_s(row) - statistics.fmean(one[row["name"]] for one in base)
        for row in faulty
        if not row["faults"]
    }


def main(paths: Sequence[str]) -> None:
    """Print the costs of three groups of jobs."""
    faulty, *without = [run_record(Path(path))["jobs"] for path in paths]
    cost_s = costs_s(faulty, without)
    guilty = {row["user"] for row in faulty if row["faults"]}
    honest = [row for row in faulty if not row["faults"]]
    groups = {
        "all": honest,
        "of other users": [row for row in honest if row["user"] not in guilty],
        "repeated": [row for row in honest if row["restarts"]],
    }
    print(f"{sum(row['state'] == 'COMPLETED' for row in honest)} of {len(honest)} completed")
    for name, rows in groups.items():
        found = [cost_s[row["name"]] for row in rows]
        if found:
            median_s, mean_s = statistics.median(found), statistics.fmean(found)
            print(
                f"{name}: {len(found)} jobs, {sum(row['restarts'] for row in rows)} runs repeated, completed later "
                f"by {median_s:.1f} s (median), {mean_s:.1f} s (mean), {max(found):.0f} s at most"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
