"""What lets a training stop and go on, without torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from paths import CHECKOUT

FOLDER = CHECKOUT / "examples" / "resume"
sys.path.insert(0, str(FOLDER))
from checkpoint import KEPT, RUN_AGAIN, Slot, newest, save  # noqa: E402

SCONTROL = """#!/bin/sh
echo "$@" >>"$0.calls"
"""
STOPPED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from checkpoint import Slot
slot = Slot()
os.kill(os.getpid(), int(sys.argv[2]))
assert slot.is_over
slot.come_back()
"""


@pytest.fixture
def ordinary_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_newest_checkpoint_is_found_by_its_step_and_old_ones_go(tmp_path: Path) -> None:
    assert newest(tmp_path / "none") is None
    for step in (8, 9, 10, 1000):
        save(tmp_path, step, lambda file, step=step: file.write(b"%d" % step) and None)
    found = newest(tmp_path)
    assert found is not None and found.read_bytes() == b"1000"
    assert len(list(tmp_path.iterdir())) == KEPT


def test_a_checkpoint_that_cannot_be_written_leaves_those_before(tmp_path: Path) -> None:
    def breaks(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    first = save(tmp_path, 1, lambda file: file.write(b"whole") and None)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, 2, breaks)
    assert newest(tmp_path) == first and first.read_bytes() == b"whole"
    save(tmp_path, 3, lambda file: file.write(b"next") and None)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("number", "calls"), [(signal.SIGUSR1, "requeue 17\n"), (signal.SIGTERM, "")], ids=lambda x: str(x)
)
def test_only_a_slot_that_ended_puts_the_job_back(tmp_path: Path, number: int, calls: str) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(SCONTROL)
    scontrol.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "17"}
    argv = [sys.executable, "-c", STOPPED, str(FOLDER), str(int(number))]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == RUN_AGAIN, done.stderr
    reported = tmp_path / "scontrol.calls"
    assert (reported.read_text() if reported.exists() else "") == calls


def test_workers_that_are_forked_end_as_ever(ordinary_signals: None) -> None:
    slot = Slot()
    ready, tell = os.pipe()
    if (worker := os.fork()) == 0:
        os.write(tell, b"!")
        signal.sigtimedwait([], 60)
        os._exit(0)
    os.read(ready, 1)
    os.kill(worker, signal.SIGTERM)
    _, status = os.waitpid(worker, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM and not slot.is_over
