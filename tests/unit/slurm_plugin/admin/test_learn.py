"""What admins see of what a site learns: `rad learn`, and rad doctor's word on it."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from slurm_plugin.admin.doctor.checks.learn import check_learn
from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.learn import NOTHING, as_json, as_text, learn
from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.config.load import Config, Paths
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.history.models import models_path
from slurm_plugin.core.history.runs import peaks_path
from slurm_plugin.core.history.site_quantiles import QuantileLimits
from slurm_plugin.core.history.site_quantiles_file import LearnedQuantiles
from slurm_plugin.estimate import Estimator

LIMITS = QuantileLimits(
    lowest=tuple(0.01 * at for at in range(len(SHARES))),
    highest=tuple(0.1 * at if at < 14 else math.inf for at in range(len(SHARES))),
    runs=90,
    models=40,
    users=9,
)
ON = Config(site_quantiles="/etc/rad/quantiles.json")


def test_a_table_says_what_would_change_and_how_to_use_it() -> None:
    learned = LearnedQuantiles(made_for="x", groups={"torchinfo@h200": LIMITS})
    text = as_text(learned, ON)
    reload = "and: systemctl reload radd"
    assert "torchinfo@h200" in text
    assert text.endswith(f"To book by this: rad learn --json > /etc/rad/quantiles.json, {reload}")
    at = SHARES.index(0.95)
    assert f"{LIMITS.lowest[at]:.2f} to {LIMITS.highest[at]:.2f}" in text
    assert f"{LIMITS.lowest[SHARES.index(0.99)]:.2f} to -" in text
    assert as_text(learned, Config()).endswith(f'> FILE, site_quantiles = "FILE" in rad.toml, {reload}')
    assert as_text(LearnedQuantiles(), ON) == NOTHING
    assert json.loads(as_json(learned))["groups"]["torchinfo@h200"]["users"] == 9


def test_where_no_runs_are_kept_one_line_says_so(tmp_path: Path) -> None:
    config = dataclasses.replace(ON, paths=Paths(state=str(tmp_path)))
    assert not learn(config, now_s=1.0).groups, "a site that has just begun"
    peaks_path(tmp_path).mkdir()
    with pytest.raises(
        ConfigError, match=r"peaks.jsonl: Is a directory; run this on the controller, as root"
    ):
        learn(config, now_s=1.0)
    peaks_path(tmp_path).rmdir()
    models_path(tmp_path).mkdir()
    with pytest.raises(ConfigError, match=r"models.jsonl"):
        learn(config, now_s=1.0)


@pytest.mark.parametrize(
    ("learned_for", "controller", "level", "text"),
    [
        (Estimator.from_config(ON).made_for, True, "ok", "is in use"),
        ("another release", True, "warn", "has no numbers for this release"),
        ("another release", False, "warn", "has no numbers for this release"),
        ("", True, "warn", "has no numbers for this release"),
        ("", False, "unseen", "cannot be read here"),
    ],
)
def test_doctor_on_learning(learned_for: str, controller: bool, level: str, text: str) -> None:
    facts = Facts(
        config_path=Path("/etc/rad/rad.toml"), config=ON, radd_here=controller, learned_for=learned_for
    )
    (finding,) = check_learn(facts)
    assert finding.level == level and text in finding.text
    assert bool(finding.fix) == (level == "warn")
    assert not list(check_learn(dataclasses.replace(facts, config=Config())))
