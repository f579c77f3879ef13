"""A process is ended only while it is the very same one."""

from __future__ import annotations

import dataclasses
import signal
import subprocess

from slurm_plugin.core.process.identity import Process
from tests.timing import within


def test_only_the_very_same_process_is_killed() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        running = Process.running(child.pid)
        assert running is not None
        assert not dataclasses.replace(running, started_ticks=running.started_ticks - 1).kill()
        assert child.poll() is None
        assert running.kill()
        assert child.wait(within(10)) == -signal.SIGKILL
    assert not running.kill()
