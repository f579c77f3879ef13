from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from epilog.tails import TAIL_BYTES, Identity, read_tails
from slurm_plugin.core.clock import Deadline, SystemClock

ME = Identity(user_id=os.geteuid(), group_id=os.getegid())
NOBODY = Identity(user_id=65534, group_id=65534, user_name="nobody")


def tails(*paths: Path, owner: Identity = ME, names: Path = Path("/nowhere")) -> tuple[str, ...]:
    deadline = Deadline(SystemClock(), 5.0)
    return read_tails(names, lambda named: [str(path) for path in paths], owner=owner, deadline=deadline)


def test_the_end_of_each_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first line\nlast line\n")
    (tmp_path / "b").write_bytes(b"x" * (2 * TAIL_BYTES) + b"the end")
    short, long = tails(tmp_path / "a", tmp_path / "b")
    assert short == "first line\nlast line\n"
    assert len(long) == TAIL_BYTES and long.endswith("xthe end")


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff\xfe CUDA out of memory \x00\0RAD\0")
    assert "CUDA out of memory" in tails(tmp_path / "a")[0]


def test_only_regular_files_are_read_and_nothing_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    assert (
        tails(tmp_path / "link", tmp_path / "fifo", tmp_path / "folder", tmp_path / "none", Path("/dev/zero"))
        == ()
    )


def test_what_the_owner_may_not_read_is_not_read() -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # pytest's own folder is closed to other users
        folder = Path(name)
        folder.chmod(0o755)
        for file, owner in (("roots", 0), ("theirs", NOBODY.user_id)):
            (folder / file).write_text(file)
            (folder / file).chmod(0o600)
            os.chown(folder / file, owner, owner)
        assert tails(folder / "roots", folder / "theirs", owner=NOBODY) == ("theirs",)


def test_as_nobody_root_reads_nothing_of_others() -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    assert tails(Path("/etc/shadow"), owner=NOBODY) == ()


def test_what_the_task_noted_reaches_the_one_who_tells_the_paths(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("x=my job\nA=7\n")
    (tmp_path / "my job").write_text("here")
    deadline = Deadline(SystemClock(), 5.0)
    found = read_tails(
        tmp_path / "names", lambda named: [str(tmp_path / named["x"])], owner=ME, deadline=deadline
    )
    assert found == ("here",)


def test_a_fault_in_the_child_costs_the_tails_alone() -> None:
    def broken(named: object) -> list[str]:
        raise ValueError

    assert read_tails(Path("/nowhere"), broken, owner=ME, deadline=Deadline(SystemClock(), 5.0)) == ()


def test_a_child_that_hangs_is_given_up(tmp_path: Path) -> None:
    def hangs(named: object) -> list[str]:
        os.read(os.pipe()[0], 1)
        return []

    clock = SystemClock()
    start_s = clock.monotonic_s()
    assert read_tails(Path("/nowhere"), hangs, owner=ME, deadline=Deadline(clock, 0.1)) == ()
    assert clock.monotonic_s() - start_s < 2
