"""A line at the end of a file that a user chose."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import epilog.last_line
from epilog.last_line import append, line_of, tell_owner
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.history.runs import Run
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.recovery.classify import Ending, classify
from slurm_plugin.core.recovery.oom_patterns import load_patterns
from slurm_plugin.core.units import GIB
from slurm_plugin.slurm.node.hook_env import HookJob
from slurm_plugin.slurm.node.owner import Identity

ME = Identity(user_id=os.geteuid(), group_id=os.getegid())
NOBODY = Identity(user_id=65534, group_id=65534)
RUN = Run(user_id=1000, job_id=7, outcome="ok", peak_bytes=9 * GIB, booked_bytes=12 * GIB, mean_smact=0.41)
LINE = "RAD: job 7 used 9.0 of 12.0 GiB, SM activity 0.41; #RAD memory=10G is enough"
REASONS = (
    "out of GPU memory (pytorch), runs again with a GPU of its own",
    "held more GPU memory than it booked, runs again with 20.0 GiB",
    "lost through another's fault (job 8), runs again as it was",
)
"""As core/recovery/classify.py words them."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach, which pytest's own is not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def test_the_line():
    assert line_of(RUN, remembered=False, runs_again="") == LINE
    assert line_of(RUN, remembered=False, runs_again="runs again as it was").endswith(
        "; runs again as it was"
    )
    assert line_of(replace(RUN, peak_bytes=None), remembered=True, runs_again="x") == ""


def test_it_is_added_after_a_whole_line_and_after_half_a_one(tmp_path: Path):
    out = tmp_path / "out"
    for before, after in (("", f"{LINE}\n"), ("done\n", f"done\n{LINE}\n"), ("done", f"done\n{LINE}\n")):
        out.write_text(before)
        assert append(str(out), LINE, ME)
        assert out.read_text() == after


def test_nothing_but_a_file_that_is_there_is_written_to(tmp_path: Path):
    (tmp_path / "real").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        for name in ("link", "fifo", "none", ".", "\0"):
            assert not append(f"{tmp_path}/{name}", LINE, ME), name
        assert not append("/dev/null", LINE, ME)
        assert not append("/dev/full", LINE, ME)
    finally:
        os.close(reader)
    assert (tmp_path / "real").read_text() == ""
    assert not (tmp_path / "none").exists()


@needs_root
def test_as_its_owner_only_his_files_are_written_to(open_folder: Path):
    """A user who names a file of root's, of another's, or one that he may not write to, gets nothing from root."""
    files = {
        "roots": (0, 0o644),
        "theirs": (65534, 0o200),
        "read_only": (65534, 0o444),
        "everybodys": (0, 0o666),
    }
    for name, (owner, mode) in files.items():
        (open_folder / name).write_text("x\n")
        os.chown(open_folder / name, owner, owner)
        (open_folder / name).chmod(mode)
    told = {name: append(str(open_folder / name), LINE, NOBODY) for name in files}
    assert told == {"roots": False, "theirs": True, "read_only": False, "everybodys": True}
    assert (open_folder / "roots").read_text() == "x\n"


@needs_root
def test_a_path_that_is_swapped_for_a_link_meanwhile_leads_nowhere(open_folder: Path):
    """Whatever the path means in the moment it is opened, it is opened as the user: there is nothing to win."""
    target = open_folder / "target"
    target.write_text("root's\n")
    folder = open_folder / "mine"
    folder.symlink_to(open_folder)  # a link in the path itself may be followed: as the user
    assert not append(str(folder / "target"), LINE, NOBODY)
    assert target.read_text() == "root's\n"


def test_a_file_system_that_hangs_costs_the_line_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(epilog.last_line, "WRITE_S", 0.1)
    monkeypatch.setattr(epilog.last_line, "_add", lambda path, line: os.read(os.pipe()[0], 1))
    clock = SystemClock()
    start_s = clock.monotonic_s()
    assert not append("/nfs/out", LINE, ME)
    assert clock.monotonic_s() - start_s < 5


def test_it_goes_where_errors_go(tmp_path: Path):
    for name in ("out", "err"):
        (tmp_path / name).write_text("")
    job = HookJob(
        job_id=7, user_id=ME.user_id, group_id=ME.group_id, work_dir=str(tmp_path), stdout="out", stderr="err"
    )

    def told() -> EventKind | None:
        event = tell_owner(job, RUN, remembered=False, runs_again="", names=dict)
        return None if event is None else event.kind

    assert told() == EventKind.TOLD_OWNER
    assert ((tmp_path / "out").read_text(), (tmp_path / "err").read_text()) == ("", f"{LINE}\n")
    (tmp_path / "err").unlink()
    assert told() == EventKind.NOT_TOLD_OWNER


@pytest.mark.parametrize("outcome", ["ok", "failed", "gpu-oom", "host-oom", "overrun", "victim", "cancelled"])
def test_no_line_of_ours_is_taken_for_a_lack_of_memory(outcome: str):
    """An Epilog may run twice: the second one reads what the first one wrote."""
    ending = Ending(exit_status=256, derived_exit=0, peak_bytes=9 * GIB, limit_bytes=12 * GIB)
    for booked in (None, GIB, 12 * GIB):
        run = replace(RUN, outcome=outcome, booked_bytes=booked, mean_smact=0.01, start_s=0.0, time_s=999.0)
        for again in ("", *REASONS):
            line = line_of(run, remembered=False, runs_again=again)
            assert classify(ending, (f"{line}\n",), load_patterns()).kind == "failed", line
