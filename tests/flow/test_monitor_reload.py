"""SIGHUP makes rad-monitor read rad.toml again; a broken one is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from flow.test_node_hooks import Hooks

from slurm_plugin.core.logs.events import EventKind, from_line
from slurm_plugin.core.logs.hook_log import EVENTS
from tests.timing import within

PATIENCE_S = within(30.0)


def wait_until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.02)


def reported(events: Path) -> list[tuple[str, EventKind]]:
    """Return hook and kind of each event of a log, which may not have been written yet."""
    lines = events.read_bytes().splitlines() if events.exists() else []
    return [(one.hook, one.event.kind) for one in map(from_line, lines) if one is not None]


def test_a_monitor_takes_over_a_good_rad_toml_and_refuses_a_broken_one(tmp_path: Path) -> None:
    node = Hooks(tmp_path)
    path, log = tmp_path / "rad.toml", tmp_path / "monitor.log"
    good = path.read_text()
    argv = [sys.executable, "-I", "-m", "slurm_plugin.monitor.daemon", "--config", str(path)]
    with log.open("wb") as file:
        monitor = subprocess.Popen(argv, stdout=file, stderr=file)
    try:
        wait_until((node.folder / "run" / "monitor" / "window.json").exists)
        path.write_text("moed = 1\n")
        monitor.send_signal(signal.SIGHUP)
        wait_until(lambda: f"rad-monitor: not applied: {path}:1: unknown key moed;" in log.read_text())
        wait_until(lambda: ("monitor", EventKind.TROUBLE) in reported(tmp_path / "log" / EVENTS))
        path.write_text(good.replace(f"{tmp_path}/run", f"{tmp_path}/other"))
        monitor.send_signal(signal.SIGHUP)
        wait_until((tmp_path / "other" / "monitor" / "window.json").exists)
        assert monitor.poll() is None, "it is still the same process, as systemd sees it"
        assert os.getpgid(monitor.pid) == os.getpgid(0)
    finally:
        monitor.terminate()
    assert monitor.wait(PATIENCE_S) == 0
