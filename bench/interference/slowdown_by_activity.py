"""Print how much trainings slow each other, by the sum of their SM activity alone.

    python bench/interference/slowdown_by_activity.py

Prints a row for each step of the sum; slurm_plugin/core/config/compute.py has the table that is made of it.
"""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

TABLE = Path(__file__).resolve().parents[2] / "gpumemnet/data/interference_h200.csv"
EDGES = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0)


def slowdowns() -> list[tuple[float, float]]:
    """Return (sum of SM activity alone, slowdown) of each training that shared a GPU under MPS."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()):
        if row["sharing"] == "mps":
            activity = float(row["alone_smact"]) * float(row["duty"])
            groups[row["group"]].append((activity, float(row["slowdown"])))
    return [
        (sum(activity for activity, _ in group), slowdown)
        for group in groups.values()
        if len(group) > 1
        for _, slowdown in group
    ]


def ninth_of_ten(values: list[float]) -> float:
    """Return what 9 of 10 values are at most."""
    return sorted(values)[int(0.9 * len(values))]


def main() -> None:
    """Print the table."""
    found = slowdowns()
    print("| sum of SMACT | trainings | median | 9 of 10 at most |\n|---|---|---|---|")
    for low, high in pairwise(EDGES):
        values = [slowdown for activity, slowdown in found if low < activity <= high]
        print(
            f"| {low:g} to {high:g} | {len(values)} | {statistics.median(values):.2f} | {ninth_of_ten(values):.2f} |"
        )


if __name__ == "__main__":
    main()
