"""Files of lines: appended by many, bounded, renamed under way, read on from where the last reading stopped."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.core.files import append_log
from slurm_plugin.core.files.append_log import NewLines, append_line


def test_lines_are_appended_for_the_owner_and_its_group_alone(tmp_path: Path) -> None:
    path = tmp_path / "log" / "events.jsonl"
    append_line(path, b"one")
    append_line(path, b"two")
    assert path.read_bytes() == b"one\ntwo\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_everybody_may_read_is_fixed(tmp_path: Path) -> None:
    path = tmp_path / "peaks.jsonl"
    path.write_bytes(b"old\n")
    path.chmod(0o644)
    append_line(path, b"new", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_never_outgrows_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for number in range(100):
        append_line(path, b"%09d" % number, most_bytes=200)
    kept = [*path.with_name("events.jsonl.1").read_bytes().splitlines(), *path.read_bytes().splitlines()]
    assert kept == [b"%09d" % number for number in range(100 - len(kept), 100)]
    assert 20 <= len(kept) <= 40
    assert sorted(one.name for one in tmp_path.iterdir()) == ["events.jsonl", "events.jsonl.1"]


def test_half_a_line_of_a_full_disk_costs_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"one\ntw")
    append_line(path, b"three")
    assert path.read_bytes() == b"one\ntw\nthree\n"


@pytest.mark.parametrize("what", ["link", "fifo", "folder"])
def test_what_is_no_file_is_not_written_to_and_nothing_waits(tmp_path: Path, what: str) -> None:
    path = tmp_path / "events.jsonl"
    (tmp_path / "other").touch()
    {"link": lambda: path.symlink_to("other"), "fifo": lambda: os.mkfifo(path), "folder": path.mkdir}[what]()
    with pytest.raises(OSError):
        append_line(path, b"x")
    assert (tmp_path / "other").read_bytes() == b""


def write_many(path: str, writer: int) -> None:
    for number in range(200):
        append_line(Path(path), b"%d %d %s" % (writer, number, b"x" * 300), most_bytes=150_000)  # passed once


def test_a_reader_gets_every_line_of_many_writers_once_although_the_file_is_renamed(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader, found = NewLines(path), []
    with ProcessPoolExecutor(4) as pool:
        tasks = [pool.submit(write_many, str(path), writer) for writer in range(4)]
        while not all(task.done() for task in tasks):
            found += reader.read()
        for task in tasks:
            task.result()
    found += reader.read()
    reported = [tuple(map(int, line.split()[:2])) for line in found]
    assert all(line.endswith(b"x" * 300) for line in found), "no line is cut or mixed with another"
    assert len(reported) == len(set(reported)), "none twice"
    for writer in range(4):
        numbers = [number for name, number in reported if name == writer]
        assert sorted(numbers) == list(range(200)), "none lost"


def test_a_file_that_came_and_was_renamed_between_two_reads_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader = NewLines(path)
    assert reader.read() == []
    path.write_bytes(b"one\n")
    path.rename(path.with_name("events.jsonl.1"))
    path.write_bytes(b"two\n")
    assert reader.read() == [b"one", b"two"]


@pytest.mark.parametrize("moment", range(8))
def test_no_line_is_lost_whenever_the_file_is_renamed(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two looks of the reader at the folder, a writer sets the file aside and begins the next."""
    path = tmp_path / "events.jsonl"
    looks = count()
    path.write_bytes(b"one\n")

    def watched(look: Callable[[Path], Any]) -> Callable[[Path], Any]:
        def seen(at: Path) -> Any:
            result = look(at)
            if next(looks) == moment:
                path.rename(path.with_name("events.jsonl.1"))
                path.write_bytes(b"two\n")
            return result

        return seen

    monkeypatch.setattr(append_log, "_inode", watched(append_log._inode))
    monkeypatch.setattr(append_log._OpenFile, "of", watched(append_log._OpenFile.of))
    reader, found = NewLines(path), []
    for _ in range(moment + 2):  # each reading looks once or more
        found += reader.read()
    assert found == [b"one", b"two"]


def test_half_a_line_waits_for_its_rest(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader = NewLines(path)
    assert reader.read() == []
    path.write_bytes(b"one\ntw")
    assert reader.read() == [b"one"]
    with path.open("ab") as file:
        file.write(b"o\n")
    assert reader.read() == [b"two"]


def test_a_file_that_was_cut_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"one\ntwo\n")
    reader = NewLines(path)
    assert reader.read() == [b"one", b"two"]
    path.write_bytes(b"new\n")
    assert reader.read() == [b"new"]


@pytest.mark.parametrize("from_end", [False, True])
def test_a_renamed_file_is_read_to_its_end_first(tmp_path: Path, from_end: bool) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"one\n")
    reader = NewLines(path, from_end=from_end)
    assert reader.read() == ([] if from_end else [b"one"])
    append_line(path, b"two")
    path.rename(tmp_path / "events.jsonl.1")
    assert reader.read() == [b"two"]
    assert reader.read() == []
    append_line(path, b"three")
    assert reader.read() == [b"three"]


def test_the_older_file_is_read_at_the_first_time(tmp_path: Path) -> None:
    (tmp_path / "peaks.jsonl.1").write_bytes(b"older\n")
    (tmp_path / "peaks.jsonl").write_bytes(b"newer\n")
    assert NewLines(tmp_path / "peaks.jsonl").read() == [b"older", b"newer"]


def test_a_file_that_was_deleted_brings_nothing_back(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    (tmp_path / "events.jsonl.1").write_bytes(b"older\n")
    path.write_bytes(b"one\n")
    reader = NewLines(path)
    assert reader.read() == [b"older", b"one"]
    path.unlink()
    assert reader.read() == []
    append_line(path, b"two")
    assert reader.read() == [b"two"]
