"""What admins see of what a site learns: `rad learn`, and rad doctor's word on it."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from slurm_plugin.admin.doctor.checks.learn import OLD_S, check_learn
from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.learn import NOTHING, as_json, as_text, learned_of
from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.config.load import Config, Features, Paths
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.history.models import models_path
from slurm_plugin.core.history.runs import peaks_path
from slurm_plugin.core.history.site_quantiles import Limits
from slurm_plugin.core.history.site_quantiles_file import Learned

LIMITS = Limits(
    lowest=tuple(0.01 * at for at in range(len(SHARES))),
    highest=tuple(0.1 * at if at < 14 else math.inf for at in range(len(SHARES))),
    runs=90,
    models=40,
    users=9,
)
ON = Config(features=Features(learn=True))


def test_a_table_says_what_would_change_and_whether_it_does() -> None:
    learned = Learned(made_for="x", groups={"torchinfo@h200": LIMITS})
    text = as_text(learned, ON)
    assert "torchinfo@h200" in text and text.endswith("radd uses it")
    at = SHARES.index(0.95)
    assert f"{LIMITS.lowest[at]:.2f} to {LIMITS.highest[at]:.2f}" in text
    assert f"{LIMITS.lowest[SHARES.index(0.99)]:.2f} to -" in text
    assert as_text(learned, Config()).endswith("not used: set learn = true in [features] of rad.toml")
    assert as_text(Learned(), ON) == NOTHING
    assert json.loads(as_json(learned))["groups"]["torchinfo@h200"]["users"] == 9


def test_where_no_runs_are_kept_one_line_says_so(tmp_path: Path) -> None:
    config = dataclasses.replace(ON, paths=Paths(state=str(tmp_path)))
    assert not learned_of(config, now_s=1.0).groups, "a site that has just begun"
    peaks_path(tmp_path).mkdir()
    with pytest.raises(
        ConfigError, match=r"peaks.jsonl: Is a directory; run this on the controller, as root"
    ):
        learned_of(config, now_s=1.0)
    peaks_path(tmp_path).rmdir()
    models_path(tmp_path).mkdir()
    with pytest.raises(ConfigError, match=r"models.jsonl"):
        learned_of(config, now_s=1.0)


@pytest.mark.parametrize(
    ("features", "age_s", "controller", "level", "text"),
    [
        (Features(learn=True), 60.0, True, "ok", "is fresh"),
        (Features(learn=True), 3 * OLD_S, True, "warn", "is 3 days old"),
        (Features(learn=True), None, True, "warn", "nothing was learned yet"),
        (Features(learn=True), None, False, "unseen", "rad-estimate uses the shipped values here"),
        (Features(learn=True, history=False), 60.0, True, "warn", "learn is on without history"),
    ],
    ids=lambda each: str(each)[:24],
)
def test_doctor_on_learning(
    features: Features, age_s: float | None, controller: bool, level: str, text: str
) -> None:
    facts = Facts(
        config_path=Path("/etc/rad/rad.toml"),
        config=Config(features=features),
        radd_here=controller,
        learned_age_s=age_s,
    )
    (finding,) = check_learn(facts)
    assert finding.level == level and text in finding.text
    assert bool(finding.fix) == (level == "warn")
    assert not list(check_learn(dataclasses.replace(facts, config=Config())))
