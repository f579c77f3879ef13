"""An MPS server's log, as an H200 (driver 580.159) wrote it: one of three clients wrote to an impossible address."""

from __future__ import annotations

import os
from pathlib import Path

from paths import DATA

from slurm_plugin.mps.daemon import LOG
from slurm_plugin.mps.faults import Fault, faults_in
from slurm_plugin.mps.log import MOST_BYTES, LogWatch

RECORDED = (DATA / "mps_fault.log").read_text()
FAULT = Fault(server=1122, culprit=1385, ended=(1385, 1387, 1389))


def test_a_recorded_fault():
    assert faults_in(RECORDED.splitlines()) == (FAULT,)


def test_two_faults_and_other_lines():
    second = RECORDED.replace("1385", "2001").replace("1387", "2002")
    found = faults_in(["", "[", "nonsense", *RECORDED.splitlines(), *second.splitlines()])
    assert [one.culprit for one in found] == [1385, 2001]


def test_the_user_of_who_is_at_fault_is_the_one_that_connected_last_under_its_pid():
    lines = [
        *(f"[2026 Control 9] NEW CLIENT 1385 from user {user}: Server already exists" for user in (7, 4711)),
        *RECORDED.splitlines(),
        "[2026 Server 1122] NEW CLIENT 1385 from user 8: Server already exists",
    ]
    assert [one.user_id for one in faults_in(lines)] == [4711]


def test_a_log_without_faults():
    assert faults_in(RECORDED.splitlines()[:2]) == ()
    assert faults_in(["[2026 Server 1] The following client process have a sticky error set:"] * 3) == ()


def log_of(run: Path) -> Path:
    path = run / "mps" / "GPU-a" / "1000" / LOG
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def append(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(handle, text.encode())
    os.close(handle)


def test_a_log_is_read_as_it_grows(tmp_path: Path):
    path, watch = log_of(tmp_path), LogWatch(tmp_path / "mps")
    assert watch.faults() == {}
    lines = RECORDED.splitlines(keepends=True)
    append(path, "".join(lines[:4]))
    assert watch.faults() == {}
    append(path, "".join(lines[4:]))
    assert watch.faults() == {("GPU-a", "1000"): (FAULT,)}
    assert watch.faults() == {}


def test_a_user_who_connects_in_a_loop_fills_no_disk(tmp_path: Path):
    path, watch = log_of(tmp_path), LogWatch(tmp_path / "mps")
    append(path, "x" * (2 * MOST_BYTES) + "\n" + RECORDED)
    assert watch.faults() == {("GPU-a", "1000"): (FAULT,)}
    assert path.stat().st_size == 0
    append(path, RECORDED.replace("1385", "7"))
    assert [one.culprit for one in watch.faults()["GPU-a", "1000"]] == [1385, 7]


def test_a_log_that_went_with_its_daemon(tmp_path: Path):
    path, watch = log_of(tmp_path), LogWatch(tmp_path / "mps")
    append(path, "a line\n")
    watch.faults()
    path.unlink()
    assert watch.faults() == {}
