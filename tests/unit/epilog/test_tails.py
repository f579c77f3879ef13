from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

import epilog.tails
from epilog.tails import TAIL_BYTES, read_tails
from slurm_plugin.core.clock import Deadline, SystemClock
from slurm_plugin.core.process import child
from slurm_plugin.slurm.node.owner import Identity
from tests.timing import within

ME = Identity(user_id=os.geteuid(), group_id=os.getegid())
NOBODY = Identity(user_id=65534, group_id=65534, user_name="nobody")


def tails(*paths: Path, owner: Identity = ME) -> tuple[str, ...]:
    return read_tails([str(path) for path in paths], owner=owner, deadline=Deadline(SystemClock(), 5.0))


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
        for file, owner in (("roots", 0), ("users", NOBODY.user_id)):
            (folder / file).write_text(file)
            (folder / file).chmod(0o600)
            os.chown(folder / file, owner, owner)
        assert tails(folder / "roots", folder / "users", owner=NOBODY) == ("users",)


def test_as_another_user_root_reads_nothing_of_others() -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    assert tails(Path("/etc/shadow"), owner=NOBODY) == ()


def test_a_fault_in_the_child_costs_the_tails_alone() -> None:
    assert tails(Path("\0")) == ()
    assert read_tails([7], owner=ME, deadline=Deadline(SystemClock(), 5.0)) == ()  # type: ignore[list-item]


def test_output_to_a_fifo_with_a_writer_that_never_ends_costs_no_time(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(writer, b"CUDA out of memory")
        clock = SystemClock()
        start_s = clock.monotonic_s()
        assert tails(tmp_path / "fifo") == ()
        assert clock.monotonic_s() - start_s < within(2)
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("length", [1, TAIL_BYTES], ids=["short", "more than a pipe holds"])
def test_a_file_that_hangs_is_given_up_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """A file system that does not answer, as NFS without its server."""
    opened = os.open

    def hangs_below_nfs(path: str, flags: int) -> int:
        if path.startswith("/nfs/"):
            os.read(os.pipe()[0], 1)
        return opened(path, flags)

    monkeypatch.setattr(epilog.tails.os, "open", hangs_below_nfs)
    monkeypatch.setattr(child, "POLITE_S", within(1.0))
    (tmp_path / "err").write_text("x" * length + "CUDA out of memory")
    clock = SystemClock()
    start_s = clock.monotonic_s()
    paths = ["/nfs/out", str(tmp_path / "err")]
    (found,) = read_tails(paths, owner=ME, deadline=Deadline(clock, within(1)))
    assert found.endswith("xCUDA out of memory") and len(found) == min(TAIL_BYTES, length + 18)
    assert clock.monotonic_s() - start_s < within(2)
