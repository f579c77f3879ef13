from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_plugin.admin import reload as reloading
from slurm_plugin.core.config.last_good import config_in_force, copy_of
from slurm_plugin.core.errors import CommandError, ConfigError


class FakeSystemd:
    def __init__(self, *active: str, broken: str = "") -> None:
        self.active, self.broken, self.reported = active, broken, []

    def run(self, argv: list[str], *, timeout_s: float) -> str:
        unit = argv[-1]
        if unit not in self.active or (argv[1] == "reload" and unit == self.broken):
            raise CommandError(tuple(argv), 3, "failed")
        if argv[1] == "reload":
            self.reported.append(unit)
        return ""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rad.toml"
    path.write_text('mode = "observe"\n')
    return path


def reload(path: Path, systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], bool]:
    monkeypatch.setattr(reloading, "run", systemd.run)
    return reloading.reload_units(path)


def test_what_runs_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemd = FakeSystemd("radd", "rad-monitor")
    assert reload(path, systemd, monkeypatch)[1]
    assert systemd.reported == ["radd", "rad-monitor"]


def test_what_does_not_run_is_no_fault_and_what_fails_is_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, good = reload(path, FakeSystemd("rad-monitor"), monkeypatch)
    assert good and "radd: not running under systemd here" in lines[0]
    assert not reload(path, FakeSystemd("radd", broken="radd"), monkeypatch)[1]


def test_where_nothing_was_reloaded_the_status_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, good = reload(path, FakeSystemd(), monkeypatch)
    assert not good and lines[-1] == "nothing was reloaded"


GOOD = "[partition.gpu]\ncollocate = true\nshards_per_gpu = 80\n"
REFUSED = {
    "moed = 1\n": ":1: unknown key moed; did you mean mode?",
    "# nothing else\n": ': names no partition any more; if that is intended, set mode = "off"',
    GOOD[:-2]: ":3: the file ends in the middle of a line",
    f"estimator = 'theirs'\n{GOOD}": ":1: estimator is 'theirs'; it must be one of",
    f"gpu = 'abacus'\n{GOOD}": ":1: gpu: unknown GPU",
}


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.parametrize("owner", [0, 65534])
def test_what_radd_would_refuse_is_refused_before(
    path: Path, text: str, owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By radd's message, whichever user the copy belongs to: radd runs as SlurmUser."""
    path.write_text(GOOD)
    config_in_force(path)
    if owner != 0 and os.geteuid() == 0:
        os.chown(copy_of(path), owner, owner)
    path.write_text(text)
    systemd = FakeSystemd("radd", "rad-monitor")
    with pytest.raises(ConfigError) as error:
        reload(path, systemd, monkeypatch)
    assert str(error.value).startswith(f"{path}{REFUSED[text]}")
    assert systemd.reported == []
    assert copy_of(path).read_text().endswith(GOOD), "only a daemon keeps a copy"


def test_of_a_wrong_rad_toml_no_user_is_informed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("moed = 1\n")
    systemd = FakeSystemd("radd", "rad-monitor")
    with pytest.raises(ConfigError, match="did you mean mode"):
        reload(path, systemd, monkeypatch)
    assert systemd.reported == []
