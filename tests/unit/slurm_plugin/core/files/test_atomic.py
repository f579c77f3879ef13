from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from small_disks import fill, free, small_disk

from slurm_plugin.core.files.atomic import clear_drafts, draft_of, replace_file, rewrite_file


def test_what_cannot_be_put_in_place_leaves_no_draft(tmp_path: Path) -> None:
    replace_file(tmp_path / "a", b"one")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        replace_file(tmp_path / "folder", b"two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "folder"]
    assert (tmp_path / "a").read_bytes() == b"one"


def test_a_link_in_the_place_of_a_draft_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    draft_of(tmp_path / "a").symlink_to(tmp_path / "victim")
    replace_file(tmp_path / "a", b"one")
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "victim").read_text()) == (b"one", "precious")


def test_of_two_writers_at_once_none_fails_and_nothing_half_done_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two Prologs learn of their node at once: the second has written all of it while the first was at its start."""
    path, write = tmp_path / "a", os.write
    second = threading.Thread(target=replace_file, args=(path, b"second"))
    between = []

    def slowly(handle: int, content: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        second.start()
        second.join()
        between.append(path.read_bytes())
        return write(handle, content)

    monkeypatch.setattr(os, "write", slowly)
    replace_file(path, b"first")
    assert (between, path.read_bytes()) == ([b"second"], b"first")
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_a_file_has_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)  # as radd.service sets it
    try:
        replace_file(tmp_path / "for everybody", b"one", mode=0o644)
    finally:
        os.umask(old)
    assert (tmp_path / "for everybody").stat().st_mode & 0o777 == 0o644


def test_a_rewritten_file_keeps_its_owner_its_mode_and_the_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    path = tmp_path / "shared" / "slurm.conf"
    path.write_text("old")
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    os.utime(path, (100, 100))
    before = path.stat()
    (tmp_path / "slurm.conf").symlink_to(path)
    rewrite_file(tmp_path / "slurm.conf", b"new")
    after = path.stat()
    assert (tmp_path / "slurm.conf").is_symlink() and path.read_text() == "new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_mtime > before.st_mtime  # by which slurmctld sees that a Lua script changed
    with pytest.raises(FileNotFoundError):
        rewrite_file(tmp_path / "none", b"new")


def test_a_full_disk_leaves_what_was_there_and_nothing_half_done(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=1m,nr_inodes=100") as folder:
        replace_file(folder / "a", b"old")
        fill(folder)
        free_one = next(folder.glob("filler-*"))
        free_one.unlink()  # an inode, and no block to write in
        before = sorted(folder.iterdir())
        for write in (
            lambda: replace_file(folder / "key", b"secret"),
            lambda: replace_file(folder / "a", b"new"),
        ):
            with pytest.raises(OSError, match=r"No space left on device: .*(key|a)'"):
                write()
        with pytest.raises(OSError, match=r"No space left on device: .*a'"):
            rewrite_file(folder / "a", b"new")
        assert sorted(folder.iterdir()) == before and (folder / "a").read_bytes() == b"old"
        free(folder)


def test_a_killed_writers_draft_goes_and_one_that_may_still_be_written_stays(tmp_path: Path) -> None:
    for name, touched_s in (("7.new", 100), ("8.new", 300), ("9", 100)):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (touched_s, touched_s))
    clear_drafts(tmp_path, before_s=200)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["8.new", "9"]
    clear_drafts(tmp_path / "no folder", before_s=200)
