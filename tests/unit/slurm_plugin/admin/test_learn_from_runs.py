"""From the files of runs and models to what a submission books, and what goes wrong on the way."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from paths import MODELS

from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.profile.record import ModelProfile
from gpumemnet.training import TrainingSetup
from slurm_plugin.admin.learn import MOST_SETUPS, as_json, learn, observed
from slurm_plugin.core.config.load import Config, parse_config
from slurm_plugin.core.history.models import Model, models_path, to_line
from slurm_plugin.core.history.observed import LEAST_RUN_S
from slurm_plugin.core.history.runs import Run, peaks_path, record
from slurm_plugin.core.history.site_quantiles import LEAST_MODELS
from slurm_plugin.core.history.site_quantiles_file import gpu_of
from slurm_plugin.core.records.submission import MemoryEstimate
from slurm_plugin.estimate import Estimator
from slurm_plugin.radd.submission.prepare import prepared
from slurm_plugin.radd.submission.submit import Submission

NOW_S = 1e9
USERS = 4
KEY = bytes(32)
MODEL = profile_with_warnings(str(MODELS / "resnet18_torchinfo.txt"), TrainingSetup(batch_size=32))[0]


def config_of(state: Path, **features: bool) -> Config:
    tree = {
        "default_partition": "gpu",
        "gpu": "h200",
        "features": features,
        "paths": {"state": str(state)},
        "site_quantiles": str(state / "quantiles.json"),
        "partition_defaults": {"gpu_memory_mib": 40000, "shard_mib": 1},
        "partition": {"gpu": {"collocate": True}, "a100": {"collocate": True, "gpu_type": "a100"}},
    }
    return parse_config(tree, origin="rad.toml")


def shipped(profile: ModelProfile = MODEL) -> MemoryEstimate:
    found = Estimator(gpu="h200").of_profile(profile.to_text())
    assert found is not None
    return found


def other(number: int) -> ModelProfile:
    """Return another model, whose estimate is the same."""
    return MODEL._replace(weights=MODEL.weights + number)


MESSAGE = {"v": 1, "user_id": 9, "gres": "gres:gpu:1", "comment": f"rad.profile:{other(0).to_text()}"}


def model(number: int, user_id: int) -> Model:
    profile = other(number)
    return Model(
        profile=profile.key,
        user=user_id,
        time_s=1.0,
        name="m",
        family="mlp",
        parameters=1,
        batch_size=1,
        optimizer="sgd",
        precision="fp32",
        text=profile.to_text(),
    )


def run_of(number: int, user_id: int, score: float = 0.1, **changes: Any) -> Run:
    estimate = shipped(other(number))
    width = estimate.upper_bytes - estimate.estimate_bytes
    made = Run(
        user_id=user_id,
        profile_key=other(number).key,
        peak_bytes=int(estimate.estimate_bytes + score * width),
        start_s=NOW_S - 1000.0,
        time_s=NOW_S,
        partition="gpu",
        outcome="ok",
    )
    return dataclasses.replace(made, **changes)


def fill(state: Path, *, score: float = 0.1, count: int = 2 * LEAST_MODELS) -> None:
    for number in range(count):
        user_id = number % USERS
        record(peaks_path(state), run_of(number, user_id, score))
        with models_path(state).open("ab") as file:
            file.write(to_line(model(number, user_id)) + b"\n")


def write(config: Config) -> Path:
    """Keep what `rad learn --json` prints in the file that rad.toml names."""
    path = Path(config.site_quantiles)
    path.write_text(as_json(learn(config, now_s=NOW_S)))
    return path


def submission(config: Config) -> Submission:
    made, _ = prepared(config, (24, 11, 0), key=KEY, peaks=None)
    return made


def estimated(config: Config) -> MemoryEstimate:
    made = submission(config)
    found = made.decided(made.parsed(MESSAGE)).estimate
    assert found is not None
    return found


@pytest.mark.parametrize(("score", "booked_more"), [(0.1, False), (1.5, True)])
def test_what_all_users_ran_is_what_a_new_one_books(tmp_path: Path, score: float, booked_more: bool) -> None:
    fill(tmp_path, score=score)
    config = config_of(tmp_path)
    before = estimated(config)
    assert before == shipped(other(0)) and not before.learned
    write(config)
    after = estimated(config)
    was, now = dict(before.quantiles)[0.9], dict(after.quantiles)[0.9]
    assert (now > was) == booked_more and now != was
    assert after.learned.startswith("re-calibrated by 40 runs of this site (40 models, 4 users): 95 % = ")
    made = submission(config)
    assert "learned=yes" in made.answer(made.parsed(MESSAGE))["log"]


def test_another_type_of_gpu_kind_or_estimator_and_a_stated_need_are_as_shipped(tmp_path: Path) -> None:
    fill(tmp_path)
    config = config_of(tmp_path)
    write(config)
    made = submission(config)
    elsewhere = made.decided(made.parsed({**MESSAGE, "partition": "a100"})).estimate
    assert elsewhere == shipped(other(0))
    stated = made.decided(made.parsed({**MESSAGE, "script": "#RAD memory=5G model=m.txt\n"})).estimate
    assert stated is not None and stated.source == "stated" and not stated.learned
    calibrated = dataclasses.replace(config, base_mib=700)
    assert not estimated(calibrated).learned
    assert not estimated(dataclasses.replace(config, site_quantiles="")).learned


def test_gpus_are_distinguished_by_partition(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert [gpu_of(config, name) for name in ("gpu", "a100", None, "nowhere")] == [
        "h200",
        "a100",
        "h200",
        "h200",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"start_s": NOW_S - LEAST_RUN_S / 2},
        {"start_s": None},
        {"time_s": None},
        {"mean_smact": 0.001},
        {"partition": None},
        {"peak_bytes": None},
        {"profile_key": None},
        {"profile_key": "of no model"},
        {"user_id": 77},
        {"processes": 2},
    ],
    ids=str,
)
def test_runs_that_do_not_tell_a_need_are_left_out(tmp_path: Path, changes: dict[str, Any]) -> None:
    models = {(1, other(1).key): model(1, 1)}
    config, estimator = config_of(tmp_path), Estimator(gpu="h200")
    assert observed([run_of(1, 1)], models, config, estimator, NOW_S)
    assert not observed([dataclasses.replace(run_of(1, 1), **changes)], models, config, estimator, NOW_S)


def test_a_run_that_was_cut_short_needed_at_least_what_it_was_allowed(tmp_path: Path) -> None:
    estimate = shipped(other(1))
    models = {(1, other(1).key): model(1, 1)}
    cap_bytes = 2 * estimate.upper_bytes - estimate.estimate_bytes
    missed = run_of(
        1, 1, profile_key=None, missed_key=other(1).key, start_s=NOW_S, outcome="gpu-oom", cap_bytes=cap_bytes
    )
    found = observed([run_of(1, 1), missed], models, config_of(tmp_path), Estimator(gpu="h200"), NOW_S)
    (group,) = found.values()
    assert [(each.score, each.runs) for each in group] == [(pytest.approx(2.0), 2)]


def test_the_latest_setups_of_a_user_count(tmp_path: Path) -> None:
    count = MOST_SETUPS + 10
    models = {(1, other(at).key): model(at, 1) for at in range(count)}
    runs = [run_of(at, 1, time_s=NOW_S - at) for at in range(count)]
    (group,) = observed(runs, models, config_of(tmp_path), Estimator(gpu="h200"), NOW_S).values()
    assert {each.profile for each in group} == {other(at).key for at in range(MOST_SETUPS)}


def test_a_damaged_or_missing_file_is_as_shipped(tmp_path: Path) -> None:
    fill(tmp_path)
    config = config_of(tmp_path)
    path = write(config)
    assert estimated(config).learned
    path.write_text(path.read_text()[:-9])
    assert not estimated(config).learned
    path.unlink()
    assert not estimated(config).learned
