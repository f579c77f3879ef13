"""The activity estimate: sane on any profile, as good on its rows as the manual says, and what rad-estimate shows."""

from __future__ import annotations

import json
import lzma
import re
import statistics
from pathlib import Path

import pytest
from click.testing import CliRunner
from paths import CHECKOUT, MODELS, SUMMARIES

from gpumemnet.cli.rad_estimate import command
from gpumemnet.estimate import Activity, Likely
from gpumemnet.estimators import activity
from gpumemnet.profile.build import profile_summary
from gpumemnet.profile.record import ModelProfile
from gpumemnet.training import TrainingSetup

ROWS = CHECKOUT / "gpumemnet" / "data" / "activity_h200.jsonl.xz"
RESNET = str(MODELS / "resnet50_torchinfo.txt")


def reported(path: str = RESNET, **setup: object) -> Activity:
    profile = profile_summary(path, TrainingSetup(**{"batch_size": 64, **setup}))  # type: ignore[arg-type]
    found = activity.estimate(profile)
    assert found is not None
    return found


def numbers(found: Activity) -> list[Likely]:
    return [found.step_s, found.smact, found.busy, found.dram]


def test_measured_trainings_lie_within_the_interval_as_often_as_it_says() -> None:
    """On the rows it was fitted to, so a little more often than on others; a broken feature shows at once."""
    inside, off = [], []
    with lzma.open(ROWS, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if "torchinfo" not in row["profiles"]:
                continue
            found = activity.estimate(ModelProfile.from_text(row["profiles"]["torchinfo"]))
            assert found is not None
            measured = row["smact_pct"] / 100
            inside.append(found.smact.low <= measured <= found.smact.high)
            off.append(abs(found.smact.value - measured))
    assert len(inside) > 450
    assert 0.75 < statistics.fmean(inside) < 0.95
    assert statistics.median(off) < 0.075


def test_more_work_takes_longer_and_fills_the_gpu() -> None:
    small, large = reported(batch_size=4), reported(batch_size=256)
    assert large.step_s.value > 5 * small.step_s.value
    assert large.smact.value > small.smact.value
    assert reported(precision="amp").step_s.value < reported(precision="fp32").step_s.value


@pytest.mark.parametrize("path", sorted(SUMMARIES.glob("*.t*t")), ids=lambda path: path.name)
def test_any_profile_gives_shares_between_none_and_all(path: Path) -> None:
    for batch_size in (1, 32, 1 << 20):
        found = reported(
            str(path), batch_size=batch_size, seq_len=128 if re.search("repr|no_input", path.name) else None
        )
        assert found.step_s.value > 0
        assert all(0 <= n.low <= n.value <= n.high for n in numbers(found))
        assert all(n.high <= 1 for n in numbers(found)[1:])


def test_rad_estimate_shows_it_with_its_uncertainty() -> None:
    runner = CliRunner()
    found = json.loads(runner.invoke(command, [RESNET, "--batch-size", "64", "--json"]).output)["activity"]
    assert found["gpu"] == "h200"
    assert found["smact"]["low"] < found["smact"]["value"] < found["smact"]["high"]
    for options in ([], ["--explain"]):
        text = runner.invoke(command, [RESNET, "--batch-size", "64", *options]).output
        assert (
            f"SM activity {found['smact']['value'] * 100:.0f} % ({found['smact']['low'] * 100:.0f} to" in text
        )


def test_without_weights_there_is_no_activity_and_still_an_estimate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(activity, "WEIGHTS", MODELS / "none.json")
    activity.load.cache_clear()
    try:
        result = CliRunner().invoke(command, [RESNET, "--batch-size", "64", "--json"])
        assert json.loads(result.output)["activity"] is None
    finally:
        activity.load.cache_clear()
