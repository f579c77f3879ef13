"""GPUs that fall off the bus, a driver that hangs or talks nonsense, and a monitor that dies."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.trial import Trials

from lab.cluster import Cluster
from lab.load import equal_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

AWAY_S = 10.0


def with_physical_gpus(cluster: Cluster, spoil: Callable[[Path], None]) -> None:
    """Spoil the list of GPUs for a while."""
    path = cluster.place.gpus("n0") / "gpus.json"
    text = path.read_text()
    spoil(path)
    cluster.clock.sleep(AWAY_S)
    whole = path.with_name("gpus.whole")
    whole.write_text(text)
    if path.is_fifo():
        answer_a_waiting_reader(path, text)
    whole.replace(path)


def answer_a_waiting_reader(path: Path, text: str) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # no job does
        return
    with os.fdopen(handle, "w") as file:
        file.write(text)


def lost(cluster: Cluster) -> None:
    def drop_the_last(path: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text())[:-1]))

    with_physical_gpus(cluster, drop_the_last)


def nonsense(cluster: Cluster) -> None:
    def garble(path: Path) -> None:
        path.write_text("[{]")

    with_physical_gpus(cluster, garble)


def hung(cluster: Cluster) -> None:
    """Put a FIFO that no job writes in the list's place: its reader waits."""

    def fifo(path: Path) -> None:
        path.unlink()
        os.mkfifo(path)

    with_physical_gpus(cluster, fifo)


def monitor_killed(cluster: Cluster) -> None:
    cluster.daemons.kill("monitor-n0")
    cluster.clock.sleep(AWAY_S)
    cluster.start_monitor(equal_nodes(1)[0])


def monitor_paused(cluster: Cluster) -> None:
    cluster.daemons.signal("monitor-n0", signal.SIGSTOP)
    cluster.clock.sleep(AWAY_S)
    cluster.daemons.signal("monitor-n0", signal.SIGCONT)


def test_a_gpu_is_lost_for_10_s(trials: Trials) -> None:
    trials.check("a GPU lost for 10 s", lost)


def test_the_driver_talks_nonsense_for_10_s(trials: Trials) -> None:
    trials.check("the driver unreadable for 10 s", nonsense)


def test_the_driver_hangs_for_10_s(trials: Trials) -> None:
    trials.check("the driver hung for 10 s", hung)


def test_the_monitor_is_killed_for_10_s(trials: Trials) -> None:
    trials.check("rad-monitor killed for 10 s", monitor_killed)


def test_the_monitor_is_paused_for_10_s(trials: Trials) -> None:
    trials.check("rad-monitor paused for 10 s", monitor_paused)
