"""MPS daemons of a folder, against a stand-in for NVIDIA's control program: real processes, real sockets, no GPU."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from paths import DATA

from slurm_plugin.core.process.identity import started_ticks
from slurm_plugin.core.units import GIB
from slurm_plugin.mps import Mps
from slurm_plugin.mps.state import read_state
from tests.timing import within

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="starts processes as other users"),
]

GPU = "GPU-11111111-2222-3333-4444-555555555555"
OTHER_GPU = "GPU-66666666-2222-3333-4444-555555555555"
STAND_IN = DATA / "fake_mps_control.py"


class Setup:
    """A run folder, and a control program of its own."""

    def __init__(self, folder: Path) -> None:
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.tools.chmod(0o777)
        self.control = self.tools / "control"
        shutil.copy(STAND_IN, self.control)
        self.control.chmod(0o755)
        (self.tools / "commands").touch()
        (self.tools / "commands").chmod(0o666)
        self.run = folder / "r"
        self.budget_s, self.answer_s = 20.0, within(5.0)  # a busy machine takes long to start the stand-in
        self.mps = self.again()

    def again(self) -> Mps:
        """Return what the next hook starts with."""
        return Mps(self.run, control=str(self.control), start_budget_s=self.budget_s, answer_s=self.answer_s)

    def acquire(
        self,
        job_id: int,
        *,
        gpu: str = GPU,
        user_id: int = 0,
        cap: int | None = 4 * GIB,
        key: str | None = None,
        processes: int = 1,
    ) -> dict[str, str]:
        return self.again().acquire(
            gpu=gpu,
            user_id=user_id,
            job_id=job_id,
            cap_bytes=cap,
            gpu_bytes=140 * GIB,
            key=key,
            processes=processes,
        )

    def place(self, *, gpu: str = GPU, user_id: int = 0, key: str | None = None) -> Path:
        return self.run / "mps" / gpu / (key or str(user_id))

    def jobs(self) -> dict[str, set[int]]:
        """Return the jobs of all daemons, by GPU."""
        found: dict[str, set[int]] = {}
        for gpu, job in self.mps.caps():
            found.setdefault(gpu, set()).add(job)
        return found

    def commands(self) -> list[str]:
        return (self.tools / "commands").read_text().splitlines()

    def pids(self, place: Path) -> tuple[int, int]:
        state = read_state(place)
        assert state.daemon is not None
        assert state.server is not None
        return state.daemon.pid, state.server.pid


def made() -> Iterator[Setup]:
    """Yield a Setup and stop its daemons; a fixture."""
    # A short path: unix sockets allow 107 bytes.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        setup = Setup(Path(name))
        yield setup
        stop_all(setup.again())


def stop_all(mps: Mps) -> None:
    """Stop all daemons, those without a job, too."""
    for job in {0, *(job for _, job in mps.caps())}:
        mps.release(job)


def admitted(folder: Path) -> set[int]:
    """Return the users that a folder's access control list names; none where it has no list, or does not exist."""
    try:
        rows = os.getxattr(folder, "system.posix_acl_access")[4:]  # linux/posix_acl_xattr.h
    except OSError:
        return set()
    return {number for tag, _, number in struct.iter_unpack("<HHI", rows) if tag == 0x02}


def eventually(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + within(5.0)
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def runs(pid: int) -> bool:
    return started_ticks(pid) is not None


def as_user(user_id: int, *argv: str) -> int:
    """Return the status of a command that another user runs."""
    return subprocess.run(
        argv, user=user_id, group=user_id, extra_groups=[], check=False, capture_output=True
    ).returncode
