"""An OOM counts only if this run wrote it; where in doubt it counts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.slurm.node.output_before import (
    WINDOW_BYTES,
    Before,
    forget,
    keep,
    look,
    recall,
    run_begins_at,
)
from slurm_plugin.slurm.node.owner import Identity

ME = Identity(user_id=os.geteuid(), group_id=os.getegid())
OLD = "epoch 1\nCUDA out of memory.\n"


def new_text(path: Path, befores: tuple[Before, ...]) -> str:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.lseek(handle, run_begins_at(handle, befores), os.SEEK_SET)
        return os.read(handle, 1 << 20).decode()
    finally:
        os.close(handle)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def written_again(path: Path, text: str) -> None:
    """Cut a file and write it, as Slurm does by default; the clock of the file system may be coarse."""
    before_ns = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before_ns + 10**9, before_ns + 10**9))


def replaced(path: Path, text: str) -> None:
    other = path.with_suffix(".new")
    other.write_text(text)
    other.rename(path)


LONG = "x" * (3 * WINDOW_BYTES) + "\n"
CASES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "appended": (OLD, lambda path: append(path, "epoch 2\n"), "epoch 2\n"),
    "appended to a long file": (LONG + OLD, lambda path: append(path, "ValueError\n"), "ValueError\n"),
    "appended the same once more": (OLD, lambda path: append(path, OLD), OLD),
    "nothing written": (OLD, lambda path: None, ""),
    "cut, shorter": (OLD, lambda path: written_again(path, "CUDA\n"), "CUDA\n"),
    "cut, longer": (OLD, lambda path: written_again(path, "another " + OLD), "another " + OLD),
    "cut, the same again": (OLD, lambda path: written_again(path, OLD), OLD),
    "replaced by the same and more": (OLD, lambda path: replaced(path, OLD + "more"), OLD + "more"),
    "empty before": ("", lambda path: append(path, OLD), OLD),
}


@pytest.mark.parametrize("case", CASES)
def test_what_this_run_wrote_counts(tmp_path: Path, case: str) -> None:
    old, write, expected = CASES[case]
    path = tmp_path / "train.log"
    path.write_text(old)
    befores = look([str(path)], ME)
    write(path)
    assert new_text(path, befores) == expected


def test_a_file_that_was_not_there_counts_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    befores = look([str(path)], ME)
    path.write_text(OLD)
    assert (befores, new_text(path, befores)) == ((), OLD)


def test_only_regular_files_are_looked_at_as_the_owner_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(OLD)
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "fifo")
    paths = [str(tmp_path / name) for name in ("link", "fifo", "none")]
    assert look([*paths, "/dev/zero", str(tmp_path), "a\0b"], ME) == ()
    if os.geteuid() == 0:
        assert look(["/etc/shadow"], Identity(user_id=65534, group_id=65534)) == ()


def test_prolog_and_epilog_speak_through_a_file_of_roots(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(OLD)
    befores = look([str(tmp_path / "log")], ME)
    keep(tmp_path, 7, befores)
    assert recall(tmp_path, 7) == befores != ()
    assert (tmp_path / "outputs" / "7").stat().st_mode & 0o777 == 0o600
    keep(tmp_path, 7, ())
    assert recall(tmp_path, 7) == () and not (tmp_path / "outputs" / "7").exists()
    keep(tmp_path, 7, befores)
    (tmp_path / "outputs" / "7").write_text('[{"device": 1')
    assert recall(tmp_path, 7) == ()
    forget(tmp_path, 7)
    forget(tmp_path, 7)
