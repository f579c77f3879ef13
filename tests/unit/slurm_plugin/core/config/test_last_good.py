"""A broken rad.toml changes nothing that was in force."""

from __future__ import annotations

import builtins
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.core.config import last_good, timed_read
from slurm_plugin.core.config.last_good import config_in_force, copied_at_s, copy_of
from slurm_plugin.core.config.load import DEFAULT_PATH
from slurm_plugin.core.errors import ConfigError
from tests.timing import within

READ_S = timed_read.READ_S
"""As shipped; other tests wait longer (conftest.py)."""

GOOD = """mode = "enforce"
[partition.gpu]
collocate = true
shards_per_gpu = 10
policy = "lug"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a rad.toml that was read once, and was good."""
    path = tmp_path / "rad.toml"
    path.write_text(GOOD)
    assert config_in_force(path).trouble == ""
    return path


def emptied(path: Path) -> None:
    path.write_text("")


def replaced_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def breaks(path: Path) -> None:
        path.unlink()
        make(path)

    return breaks


BREAKS: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": emptied,
    "comments alone": lambda path: path.write_text("# to be written\n"),
    "half written, cut in a value": lambda path: path.write_text(GOOD[:-4]),
    "half written, cut after a value": lambda path: path.write_text(GOOD.rstrip("\n").rpartition("\n")[0]),
    "half written, cut in a number": lambda path: path.write_text(GOOD[: GOOD.index("10") + 1]),
    "no TOML": lambda path: path.write_text("mode = enforce\n"),
    "an unknown key": lambda path: path.write_text(GOOD + 'polcy = "magm"\n'),
    "a wrong value": lambda path: path.write_text(GOOD.replace("10", "-1")),
    "bytes that are no text": lambda path: path.write_bytes(b"\xff\xfe" * 500),
    "nested without end": lambda path: path.write_text("a = " + "[" * 200_000 + "\n"),
    "a folder": replaced_by(Path.mkdir),
    "a link to nothing": replaced_by(lambda path: path.symlink_to("/nowhere/rad.toml")),
    "a FIFO without a writer": replaced_by(os.mkfifo),
    "without end": replaced_by(lambda path: path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("how", BREAKS)
def test_whatever_is_wrong_with_rad_toml_the_last_good_one_stays_in_force(
    path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = config_in_force(path).config
    monkeypatch.setattr(timed_read, "READ_S", READ_S)
    BREAKS[how](path)
    start_s = time.monotonic()
    found = config_in_force(path)
    assert time.monotonic() - start_s < within(5)
    assert found.config == before
    assert str(path) in found.trouble and "last good copy" in found.trouble
    assert copy_of(path).read_text().endswith(GOOD), "what is broken is not kept"


@pytest.mark.parametrize(
    "how", sorted(set(BREAKS) - {"empty", "comments alone", *filter(lambda n: "half" in n, BREAKS)})
)
def test_where_none_was_ever_good_that_is_said(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed_read, "READ_S", READ_S)
    path = tmp_path / "rad.toml"
    path.write_text("x")
    BREAKS[how](path)
    with pytest.raises(ConfigError, match="there is no last good copy"):
        config_in_force(path)


def test_a_file_server_that_hangs_costs_a_second(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, opened = os.getpid(), builtins.open

    def dead(name: object, *arguments: object, **more: object) -> object:
        if os.getpid() != here and name == str(path):
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            time.sleep(600)
        return opened(name, *arguments, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(builtins, "open", dead)
    monkeypatch.setattr(timed_read, "READ_S", READ_S)
    start_s = time.monotonic()
    found = config_in_force(path)
    assert time.monotonic() - start_s < within(3)
    assert "out of time" in found.trouble and found.config.partitions["gpu"].policy == "lug"


def test_a_change_that_is_good_is_in_force_at_once_and_kept(path: Path) -> None:
    for text in (GOOD.replace("lug", "mug"), 'mode = "off"\n', GOOD + "[partition.other]\n"):
        path.write_text(text)
        found = config_in_force(path)
        assert found.trouble == ""
        assert copy_of(path).read_text().endswith(text)
    assert set(found.config.partitions) == {"gpu", "other"}
    path.write_text(GOOD)
    assert config_in_force(path).trouble == "", "partitions may go, from the file's end too"


@pytest.mark.parametrize(
    "how", ["others may write", "another owner", "cut short", "changed", "a link", "a FIFO"]
)
def test_a_copy_that_cannot_be_believed_is_none(path: Path, tmp_path: Path, how: str) -> None:
    if how == "another owner" and os.geteuid() != 0:
        pytest.skip("needs root")
    copy = copy_of(path)
    content = copy.read_text()
    breaks: dict[str, Callable[[], object]] = {
        "others may write": lambda: copy.chmod(0o666),
        "another owner": lambda: os.chown(copy, 65534, 65534),
        "cut short": lambda: copy.write_text(content[:-20]),
        "changed": lambda: copy.write_text(content.replace("lug", "mug")),
        "a link": lambda: (copy.rename(tmp_path / "moved"), copy.symlink_to(tmp_path / "moved")),
        "a FIFO": lambda: (copy.unlink(), os.mkfifo(copy)),
    }
    breaks[how]()
    assert copied_at_s(path) is None
    path.unlink()
    with pytest.raises(ConfigError):
        config_in_force(path)
    path.write_text(GOOD)
    assert config_in_force(path).trouble == "" and copied_at_s(path) is not None, "a good rad.toml ends it"


def test_a_copy_of_another_version_may_have_keys_that_this_one_lacks(path: Path) -> None:
    last_good._keep(copy_of(path), GOOD + "smact_max_of_next_year = 3\n")
    path.unlink()
    assert config_in_force(path).config.partitions["gpu"].policy == "lug"


def test_where_no_copy_can_be_kept_rad_toml_counts_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rad.toml"
    path.write_text(GOOD)
    monkeypatch.setattr(last_good, "copy_of", lambda path: Path("/proc/none/rad.toml.good"))
    assert config_in_force(path).trouble == ""


def test_the_usual_rad_toml_has_its_copy_on_this_machines_disk() -> None:
    assert copy_of(DEFAULT_PATH) == Path("/var/lib/rad/rad.toml.good")


def test_a_user_may_read_what_root_kept_and_no_other_job_writes_it(path: Path) -> None:
    assert copy_of(path).stat().st_mode & 0o777 == 0o644
