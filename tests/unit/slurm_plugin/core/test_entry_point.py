"""Every program ends with one line and a status that says of which kind: 0, 1, 2 or 3."""

from __future__ import annotations

import pwd
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from slurm_plugin.admin.cli import main as rad
from slurm_plugin.core import entry_point
from slurm_plugin.core.config.load import Paths
from slurm_plugin.core.entry_point import plain_end
from slurm_plugin.core.errors import ConfigError, DeviceError, EstimateError, SlurmError, WireError
from slurm_plugin.monitor import daemon
from slurm_plugin.radd import __main__ as radd
from tests.timing import within

FOLDERS = entry_point._folders


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(entry_point, "_folders", lambda: (tmp_path / "log",))
    return tmp_path / "log" / "bugs.log"


def status_of(error: Exception | None) -> int:
    try:
        with plain_end("rad"):
            if error is not None:
                raise error
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, 0),
        (DeviceError("no GPU"), 1),
        (SlurmError("no answer"), 1),
        (ConfigError("rad.toml: unknown key modus"), 2),
        (WireError("too long"), 2),
        (EstimateError("m.txt:3: not a number"), 2),
        (KeyError("x"), 3),
        (RecursionError(), 3),
    ],
)
def test_each_kind_has_its_status(
    error: Exception | None, status: int, capsys: pytest.CaptureFixture[str], log: Path
) -> None:
    assert status_of(error) == status
    assert len(capsys.readouterr().err.splitlines()) == (status > 0)
    assert log.exists() == (status == 3)


def test_a_bug_is_one_line_that_names_the_file_of_its_traceback(
    capsys: pytest.CaptureFixture[str], log: Path
) -> None:
    for number in (1, 2):
        status_of(ValueError(f"a text\nof {number} lines"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == (
        f"rad: internal error, please report it: ValueError: a text of 2 lines; its traceback is in {log}"
    )
    assert log.read_text().count("Traceback (most recent call last)") == 2
    assert log.stat().st_mode & 0o777 == 0o600


def test_where_no_folder_can_be_written_the_traceback_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "bugs.log").symlink_to(tmp_path / "file")
    folders = (tmp_path / "file" / "below", tmp_path / "linked")
    monkeypatch.setattr(entry_point, "_folders", lambda: folders)
    assert status_of(ValueError("x")) == 3
    shown = capsys.readouterr().err
    assert "no log could be written" in shown and "Traceback (most recent call last)" in shown
    assert (tmp_path / "file").read_text() == ""


def test_rad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path) -> None:
    def run(*argv: str) -> tuple[int, str]:
        result = CliRunner().invoke(rad, [*argv])
        return result.exit_code, result.output

    wrong = tmp_path / "rad.toml"
    wrong.write_text("modus = 1\n")
    assert run("status", "--help")[0] == 0
    assert run("doctor", "--config", str(wrong))[0] == 1, "what is wrong is what the doctor looks for"
    assert run("status", "--config", str(wrong))[0] == 2
    assert run("status", "--no-such-option")[0] == 2
    wrong.write_text(f'[telemetry]\nsource = "simulated"\nsimulated_folder = "{tmp_path}/none"\n')
    assert run("status", "--config", str(wrong))[0] == 1
    monkeypatch.setattr("slurm_plugin.admin.cli.read_settings", lambda path: 1 / 0)
    status, output = run("status")
    assert (status, len(output.splitlines())) == (3, 1)
    assert "ZeroDivisionError" in log.read_text()


def test_rad_monitor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path) -> None:
    def run(*argv: str) -> object:
        with pytest.raises(SystemExit) as end:
            sys.exit(daemon.main(argv))
        return end.value.code

    (tmp_path / "rad.toml").write_text(
        f'[telemetry]\nsource = "simulated"\nsimulated_folder = "{tmp_path}/none"\n'
        f'[paths]\nrun = "{tmp_path}/run"\n'
    )
    assert run("--no-such-option") == 2
    assert run("--config", "/nowhere/rad.toml", "--once") == 2
    assert run("--config", f"{tmp_path}/rad.toml", "--once") == 1
    monkeypatch.setattr(daemon, "config_in_force", lambda path: 1 / 0)
    assert run("--once") == 3
    assert "ZeroDivisionError" in log.read_text()


def test_radd(monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    run = CliRunner().invoke
    assert run(radd.main, ["--no-such-option"]).exit_code == 2
    assert run(radd.main, ["--config", "/nowhere/rad.toml"]).exit_code == 2
    monkeypatch.setattr(radd, "config_in_force", lambda path: 1 / 0)
    assert run(radd.main, []).exit_code == 3
    assert "ZeroDivisionError" in log.read_text()


def test_a_reader_that_has_enough_is_no_bug(log: Path) -> None:
    code = (
        "from slurm_plugin.core.entry_point import plain_end\n"
        "with plain_end('x'):\n    while True: print('y' * 10000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as done:
        assert done.stdout is not None and done.stderr is not None
        done.stdout.read(10)
        done.stdout.close()
        assert done.stderr.read() == b""
        assert done.wait(timeout=within(20)) == 1


def test_a_users_own_folder_is_where_he_says_or_below_his_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert FOLDERS()[1:] == (tmp_path / ".local" / "state" / "rad",)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert FOLDERS()[1:] == (tmp_path / "state" / "rad",)


def test_a_bug_is_reported_to_an_unknown_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(uid: int) -> NoReturn:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert FOLDERS() == (Path(Paths().log),)
