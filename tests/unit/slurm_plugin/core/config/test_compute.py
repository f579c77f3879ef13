"""What packing costs in speed is what was measured."""

from __future__ import annotations

import csv
from collections import defaultdict

import pytest
from paths import CHECKOUT

from slurm_plugin.core.config.compute import with_waits

TABLE = CHECKOUT / "gpumemnet" / "data" / "interference_h200.csv"
STEP = 0.5
SLOWED = ((1.3, 1.0), (2.05, 1.5), (3.5, 2.0), (4.6, 2.5), (6.7, 3.0))
"""(factor, sum of SM activity): what gres_conf/rad.toml says of `compute_overcommit`."""


def measured() -> list[tuple[float, float]]:
    """Return (sum of SM activity alone, slowdown) of each training in a group."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in csv.DictReader(TABLE.read_text().splitlines()):
        if row["sharing"] == "mps":
            groups[row["group"]].append(
                (float(row["alone_smact"]) * float(row["duty"]), float(row["slowdown"]))
            )
    return [
        (sum(one for one, _ in group), slowdown)
        for group in groups.values()
        if len(group) > 1
        for _, slowdown in group
    ]


@pytest.mark.parametrize(("factor", "activity"), SLOWED)
def test_nine_of_ten_trainings_are_slowed_at_most_so(factor: float, activity: float) -> None:
    found = sorted(slowdown for total, slowdown in measured() if activity - STEP < total <= activity)
    assert len(found) > 50
    ninth = found[int(0.9 * len(found))]
    assert 0.93 * factor <= ninth <= factor, "no more is promised, and not much less"


def test_waits_that_were_seen_are_waits_of_its_kernels_too() -> None:
    assert with_waits(0.8, 0.4, 0.1) == pytest.approx(0.2)
    assert with_waits(0.8, 0.4, 0.9) == 0.8, "it was never busier than a training that never waits"
    assert with_waits(None, 0.4, 0.1) is None
    assert with_waits(0.8, None, 0.1) is None
