"""What packing costs in speed is what was measured."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import pytest
from paths import CHECKOUT

from slurm_plugin.core.config.compute import SLOWED, with_waits
from slurm_plugin.core.config.load import load_config, parse_text
from slurm_plugin.core.errors import ConfigError

TABLE = CHECKOUT / "gpumemnet" / "data" / "interference_h200.csv"
STEP = 0.5


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


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("max_slowdown = 3.5", "write compute_overcommit = 2.00"),
        ("max_slowdown = 1", "write compute_overcommit = 1.00"),
        ("max_slowdown = 0.0", "remove the line"),
    ],
)
def test_a_removed_setting_is_named_with_its_line_and_the_equivalent_value(
    tmp_path: Path, line: str, fix: str
) -> None:
    path = tmp_path / "rad.toml"
    path.write_text(
        f"# max_slowdown = 2.0\n[partition.gpu]\ncollocate = true\ngpu_memory_mib = 40000\n{line}\n"
    )
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert (
        str(refused.value) == f"{path}, line 5: max_slowdown is now part of compute_overcommit; {fix} instead"
    )
    assert (
        parse_text(path.read_text(), origin="copy", strict=False).partitions["gpu"].compute_overcommit == 2.0
    )


def test_waits_that_were_seen_are_waits_of_its_kernels_too() -> None:
    assert with_waits(0.8, 0.4, 0.1) == pytest.approx(0.2)
    assert with_waits(0.8, 0.4, 0.9) == 0.8, "it was never busier than a training that never waits"
    assert with_waits(None, 0.4, 0.1) is None
    assert with_waits(0.8, None, 0.1) is None
