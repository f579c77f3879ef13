"""slurmctld is killed and comes back."""

from __future__ import annotations

import pytest
from faults.trial import Trials

from lab.cluster import Cluster

pytestmark = pytest.mark.cluster

AWAY_S = 4.0


def saved(cluster: Cluster) -> None:
    """Wait until slurmctld has saved all that it knows now: a file that comes first may have been begun before."""
    state = cluster.place.root / "spool" / "slurmctld" / "job_state"
    for _ in range(2):
        seen_s = state.stat().st_mtime if state.exists() else 0.0
        cluster.wait("slurmctld saves its state", lambda s=seen_s: cluster.saved_since(s), 30)


def kill_slurmctld(cluster: Cluster) -> None:
    """Kill slurmctld when it has saved every job that it took.

    What it takes in between saves, Slurm alone forgets too: one run would lose such a job and the next would not.
    Two of its jobs may then have one id, for which slurmd drains the node.
    """
    with cluster.submissions:
        saved(cluster)
        cluster.daemons.kill("slurmctld")


def slurmctld_killed(cluster: Cluster) -> None:
    kill_slurmctld(cluster)
    cluster.clock.sleep(AWAY_S)
    cluster.start_slurmctld()


def test_slurmctld_is_killed_under_load(trials: Trials) -> None:
    trials.check("slurmctld killed for 4 s", slurmctld_killed, slurm_fault=slurmctld_killed)
