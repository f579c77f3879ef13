"""radd is killed, or hangs."""

from __future__ import annotations

import signal

import pytest
from faults.trial import Trials

from lab.cluster import Cluster

pytestmark = pytest.mark.cluster

AWAY_S = 20.0


def killed(cluster: Cluster) -> None:
    cluster.daemons.kill("radd")
    cluster.clock.sleep(AWAY_S)
    cluster.start_radd()


def paused(cluster: Cluster) -> None:
    cluster.daemons.signal("radd", signal.SIGSTOP)
    cluster.clock.sleep(AWAY_S)
    cluster.daemons.signal("radd", signal.SIGCONT)


def restarted(cluster: Cluster) -> None:
    """As systemd does it: radd is back after a second."""
    cluster.daemons.kill("radd")
    cluster.clock.sleep(1.0)
    cluster.start_radd()


def test_radd_is_killed_and_restarted(trials: Trials) -> None:
    trials.check("radd killed, back after 1 s", restarted)


@pytest.mark.slow
def test_radd_is_away_for_20_s(trials: Trials) -> None:
    trials.check("radd killed for 20 s", killed)


def test_radd_hangs_for_20_s(trials: Trials) -> None:
    trials.check("radd paused for 20 s", paused)
