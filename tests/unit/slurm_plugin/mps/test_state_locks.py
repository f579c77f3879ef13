"""The locks of MPS servers and of quarantines are free as soon as they are released."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from slurm_plugin.core.clock import Clock, Deadline, SystemClock
from slurm_plugin.core.process.child import Child
from slurm_plugin.mps.state import locked, locked_folder


@pytest.mark.parametrize("lock", [locked, locked_folder])
def test_a_child_of_another_thread_keeps_no_lock(
    lock: Callable[[Path, Clock, Deadline], AbstractContextManager[None]], tmp_path: Path
) -> None:
    def wait() -> bytes:
        time.sleep(60)
        return b""

    clock = SystemClock()
    with lock(tmp_path, clock, Deadline(clock, 1.0)):
        child = Child(wait, timeout_s=60)
    try:
        with lock(tmp_path, clock, Deadline(clock, 0.0)):
            pass
    finally:
        os.kill(child._pid, signal.SIGKILL)
