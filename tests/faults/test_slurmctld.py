"""slurmctld is killed and comes back."""

from __future__ import annotations

import pytest
from faults.trial import Trials

from lab.cluster import Cluster

pytestmark = pytest.mark.cluster

AWAY_S = 4.0


def slurmctld_killed(cluster: Cluster) -> None:
    """Kill it just after it saved its state: what it takes in between saves, Slurm alone forgets too."""
    saved = cluster.place.root / "spool" / "slurmctld" / "job_state"
    seen_s = saved.stat().st_mtime if saved.exists() else 0.0
    cluster.wait("slurmctld saves its state", lambda: saved.exists() and saved.stat().st_mtime > seen_s, 30)
    cluster.daemons.kill("slurmctld")
    cluster.clock.sleep(AWAY_S)
    cluster.start_slurmctld()


def test_slurmctld_is_killed_under_load(trials: Trials) -> None:
    trials.check("slurmctld killed for 4 s", slurmctld_killed, slurm_fault=slurmctld_killed)
