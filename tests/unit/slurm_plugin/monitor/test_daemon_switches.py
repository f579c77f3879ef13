"""What rad-monitor starts with: each part by its own switch, and none of it for one sample."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.bare_node import make_bare_node
from slurm_plugin.core.config.last_good import config_in_force
from slurm_plugin.core.logs.hook_log import EVENTS
from slurm_plugin.guard.watch import Guard
from slurm_plugin.monitor import daemon
from slurm_plugin.monitor.monitor import Monitor


class Started:
    """What a rad-monitor was made of, until it was to take its first sample."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: dict[str, Any] = {}
        self.reconcilers = 0
        started = self

        class Seen(Monitor):
            def __init__(self, *args: Any, **parts: Any) -> None:
                started.parts = parts
                super().__init__(*args, **parts)

        def watch(monitor: Monitor, clock: object, *, stopped: Sequence[int], look: object) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            assert list(stopped) == [signal.SIGTERM]

        def start(reconciler: object) -> None:
            started.reconcilers += 1

        monkeypatch.setattr(daemon, "Monitor", Seen)
        monkeypatch.setattr(daemon, "watch", watch)
        monkeypatch.setattr(daemon.Reconciler, "start", start)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield Started(monkeypatch)
    for number, handler in before.items():
        signal.signal(number, handler)
    root.setLevel(level)
    root.handlers[:] = handlers


def begin(folder: Path, *words: str, top: str = "") -> int:
    return daemon.main(["--config", str(make_bare_node(folder, gpus=2, gpu_gib=10, top=top)), *words])


@pytest.mark.parametrize(
    ("top", "guard", "reconcilers"),
    [
        ("", True, 1),
        ('mode = "observe"', True, 0),
        ("[features]\nguard = false", True, 1),
        ("[features]\nplacement = false", True, 0),
        ('mode = "off"', False, 0),
    ],
)
def test_each_part_has_its_switch(
    started: Started, tmp_path: Path, top: str, guard: bool, reconcilers: int
) -> None:
    assert begin(tmp_path, top=top) == 0
    assert (isinstance(started.parts["guard"], Guard), started.reconcilers) == (guard, reconcilers)
    assert started.parts["exporter"] is None, "nothing is served that is not configured"


def test_one_sample_is_printed_and_nothing_else_is_done(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert begin(tmp_path, "--once") == 0
    assert "GPU-0" in capsys.readouterr().out
    assert (started.parts["guard"], started.parts["exporter"], started.reconcilers) == (None, None, 0)
    assert not (tmp_path / "log" / EVENTS).exists()


def test_settings_that_are_not_those_of_rad_toml_are_reported(started: Started, tmp_path: Path) -> None:
    path = make_bare_node(tmp_path, gpus=1, gpu_gib=10)
    config_in_force(path)  # a hook that read it while it was good kept a copy
    path.write_text("moed = 1\n")
    assert daemon.main(["--config", str(path)]) == 0
    reported = (tmp_path / "log" / EVENTS).read_text()
    assert reported.count('"event":"last good settings"') == 1 and "moed" in reported


def test_an_address_that_cannot_be_had_keeps_no_job_from_watching(
    started: Started, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = make_bare_node(tmp_path, gpus=1, gpu_gib=10)
    path.write_text(path.read_text().replace("[telemetry]", '[telemetry]\nserve = "203.0.113.1:9835"'))
    assert daemon.main(["--config", str(path)]) == 0
    assert started.parts["exporter"] is None
    assert [line.startswith(f"{path}:9: telemetry.serve: ") for line in caplog.messages] == [True]
    with pytest.raises(SystemExit) as ended:
        daemon.main(["--config", str(path), "--metrics", "203.0.113.1:9835"])
    assert ended.value.code == 2, "it was requested by hand"
