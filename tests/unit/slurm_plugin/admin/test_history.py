"""`rad history`: runs by user and model, with names and dates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_plugin.admin.cli import main
from slurm_plugin.admin.history import as_text, peaks
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.files.append_log import PRIVATE, append_line
from slurm_plugin.core.history.models import Model, from_lines, models_path, to_line
from slurm_plugin.core.history.runs import Run, peaks_path, record
from slurm_plugin.core.units import GIB

USER = 4_000_000_000  # no machine has a name for it
MODEL = Model(
    profile="ab12",
    user=USER,
    time_s=1.5,
    name="resnet50",
    family="cnn",
    parameters=25557032,
    batch_size=64,
    optimizer="adam",
    precision="amp",
    text="p4.0.1",
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    for n, (key, peak) in enumerate((("ab12", 3), ("ab12", 2), ("cd34", 5), (None, 9))):
        run = Run(user_id=USER, profile_key=key, peak_bytes=peak * GIB, booked_bytes=12 * GIB, time_s=1e9 + n)
        record(peaks_path(tmp_path), run)
    append_line(models_path(tmp_path), to_line(MODEL), mode=PRIVATE)
    return tmp_path


def test_runs_of_one_model_are_one_row(state: Path):
    first, second = peaks(state)
    assert (first.runs, first.highest_bytes, first.last_bytes) == (2, 3 * GIB, 2 * GIB)
    assert (first.first_s, first.last_s, first.model) == (1e9, 1e9 + 1, MODEL)
    assert (second.profile_key, second.model) == ("cd34", None)
    assert peaks(state, user_id=5) == []
    assert "resnet50" in as_text([first]) and "2001-09-" in as_text([first])


def test_a_model_of_another_user_gives_no_name(state: Path):
    record(peaks_path(state), Run(user_id=5, profile_key="ab12", peak_bytes=GIB))
    assert peaks(state, user_id=5)[0].model is None


def test_json_has_names_and_dates(state: Path):
    toml = state / "rad.toml"
    toml.write_text(f'[paths]\nstate = "{state}"\n')
    reported = json.loads(CliRunner().invoke(main, ["history", "--config", str(toml), "--json"]).output)
    (first, _) = reported["models"]
    assert (first["model"]["name"], first["runs"], first["user"]) == ("resnet50", 2, str(USER))
    assert first["last"].startswith("2001-09-")


def test_damaged_lines_of_models_are_skipped():
    assert from_lines([b"", b"[]", to_line(MODEL)[:30], b'{"profile":1}', to_line(MODEL)]) == {
        (USER, "ab12"): MODEL
    }


def test_without_a_history_there_is_one_line(tmp_path: Path):
    with pytest.raises(ConfigError, match="on the controller"):
        peaks(tmp_path)
