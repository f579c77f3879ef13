"""An MPS server's log, as an H200 and an H100 (driver 580.159) wrote it: one of three clients made an invalid write."""

from __future__ import annotations

import os
from pathlib import Path

from paths import DATA

from slurm_plugin.mps.daemon import LOG
from slurm_plugin.mps.faults import faults_in
from slurm_plugin.mps.log import MOST_BYTES, LogWatch

RECORDED = (DATA / "mps_fault.log").read_text()
FAULT = (1385, 1387, 1389)
WRONG_CLIENT = (DATA / "mps_fault_wrong_client.log").read_text()
"""Client 923 of user 4711 faulted, and the log names client 912, and user 0 for both."""


def test_a_recorded_fault():
    assert faults_in(RECORDED.splitlines()) == (FAULT,)
    assert faults_in(WRONG_CLIENT.splitlines()) == ((912, 923, 913),)


def test_no_client_is_named_as_the_cause_whichever_the_log_names():
    others = {WRONG_CLIENT.replace("{PID: 912", f"{{PID: {pid}") for pid in (912, 923, 913, 1)}
    assert len({faults_in(one.splitlines()) for one in others}) == 1


def test_two_faults_and_other_lines():
    second = RECORDED.replace("1385", "2001").replace("1387", "2002")
    found = faults_in(["", "[", "nonsense", *RECORDED.splitlines(), *second.splitlines()])
    assert found == (FAULT, (2001, 2002, 1389))


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
    append(path, RECORDED.replace("1385", "7"))
    (second,) = watch.faults()["GPU-a", "1000"]
    assert second[0] == 7
    append(path, "another line\n")
    assert watch.faults() == {}


def test_a_user_who_connects_in_a_loop_fills_no_disk(tmp_path: Path):
    path, watch = log_of(tmp_path), LogWatch(tmp_path / "mps")
    append(path, "x" * (2 * MOST_BYTES) + "\n" + RECORDED)
    assert watch.faults() == {("GPU-a", "1000"): (FAULT,)}
    assert path.stat().st_size == 0
    append(path, RECORDED.replace("1385", "7"))
    assert [one[0] for one in watch.faults()["GPU-a", "1000"]] == [7]


def test_a_fault_is_found_before_thousands_of_connections(tmp_path: Path):
    path, watch = log_of(tmp_path), LogWatch(tmp_path / "mps")
    append(path, RECORDED + "[2026-11-27 03:45:51.725 Control   876] NEW CLIENT 923 from user 0\n" * 10_000)
    assert watch.faults() == {("GPU-a", "1000"): (FAULT,)}


def test_a_log_that_went_with_its_daemon(tmp_path: Path):
    path, watch = log_of(tmp_path), LogWatch(tmp_path / "mps")
    append(path, "a line\n")
    watch.faults()
    path.unlink()
    assert watch.faults() == {}
