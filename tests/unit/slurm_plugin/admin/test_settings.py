"""Every command names what is wrong with rad.toml, and shows nothing by settings that nobody chose."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from slurm_plugin.admin.cli import main
from slurm_plugin.core.config.last_good import config_in_force, copy_of

GOOD = '[telemetry]\nsource = "simulated"\n[partition.gpu]\ncollocate = true\nshards_per_gpu = 8\n'

SHOWS: dict[str, tuple[str, ...]] = {
    "digest": (),
    "history": (),
    "learn": (),
    "metrics": (),
    "report": ("--user", "root"),
    "status": (),
    "top": ("--node", "gpu1=127.0.0.1:1", "--once"),
    "why": ("7",),
}
"""Commands that go on with the last good settings, and what else each must be given."""

SIZE = ("--gpu-memory-mib", "80000")
ASKS = {"reload": (), "simulate": ("none", *SIZE), "advise": ("none", *SIZE)}
"""Commands that are about this very file."""


@pytest.fixture
def rad_toml(tmp_path: Path) -> Path:
    """Return a rad.toml that was good once, and has a wrong key in its second line now."""
    path = tmp_path / "rad.toml"
    paths = "".join(f'{name} = "{tmp_path}"\n' for name in ("run", "state", "log"))
    path.write_text(f"{GOOD}[paths]\n{paths}")
    assert config_in_force(path).trouble == ""
    path.write_text(GOOD.replace("source", "sauce"))
    return path


def called(name: str, rad_toml: Path) -> Result:
    return CliRunner().invoke(main, [name, *(SHOWS | ASKS)[name], "--config", str(rad_toml)])


def test_every_command_that_reads_rad_toml_is_looked_at() -> None:
    reads = {
        name
        for name, command in main.commands.items()
        if any("--config" in option.opts for option in command.params if isinstance(option, click.Option))
    }
    assert reads == {"doctor", *SHOWS, *ASKS}  # doctor reports it as a finding: test_report.py


@pytest.mark.parametrize("name", sorted(SHOWS))
def test_a_command_goes_on_with_the_last_good_settings_and_says_so(name: str, rad_toml: Path) -> None:
    first = called(name, rad_toml).stderr.splitlines()[0]
    assert first.startswith(f"rad {name}: {rad_toml}:2: ")
    assert first.endswith("; the last good copy is in force")


@pytest.mark.parametrize("name", sorted(SHOWS | ASKS))
def test_without_a_last_good_copy_it_stops_and_names_line_and_fix(name: str, rad_toml: Path) -> None:
    copy_of(rad_toml).unlink()
    done = called(name, rad_toml)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert f"{rad_toml}:2: " in done.stderr and "source" in done.stderr


@pytest.mark.parametrize("name", sorted(ASKS))
def test_a_question_about_this_file_is_not_answered_by_another(name: str, rad_toml: Path) -> None:
    assert called(name, rad_toml).exit_code == 2


@pytest.mark.parametrize("name", sorted(SHOWS))
def test_what_only_shows_keeps_no_copy(name: str, rad_toml: Path) -> None:
    copy_of(rad_toml).unlink()
    rad_toml.write_text(GOOD)
    called(name, rad_toml)
    assert not copy_of(rad_toml).exists()


@pytest.mark.parametrize("name", sorted(SHOWS))
def test_without_rad_toml_only_views_of_other_machines_go_on_and_say_by_what(
    name: str, tmp_path: Path
) -> None:
    done = called(name, tmp_path / "none.toml")
    first = done.stderr.splitlines()[0]
    assert first.startswith(f"rad {name}: {tmp_path}/none.toml: No such file or directory; ")
    if name == "top":
        assert done.exit_code == 0 and "gpu1" in done.stdout
    assert first.endswith("the defaults count") == (name in ("top", "why"))
