"""slurmctld dies just after a Prolog has put a job back into its queue, before it has written that down.

All jobs are submitted and saved by then, so that it forgets the put-back alone.
"""

from __future__ import annotations

import json
import subprocess

import pytest
from faults.test_slurmctld import saved, slurmctld_killed
from faults.trial import Trials

from lab.cluster import Cluster
from slurm_plugin.core.process.identity import started_ticks
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

AWAY_S = 4.0
UNMANAGED_BYTES = 30 * GIB
_STRANGERS: list[subprocess.Popen[bytes]] = []


def strangers_come(cluster: Cluster) -> None:
    """Fill each card for the most part with a process of no job, so that no exclusive job may start."""
    folder = cluster.place.gpus("n0")
    for card in SimulatedGpus(folder).gpus():
        stranger = subprocess.Popen(["sleep", "600"], env={"PATH": "/usr/bin:/bin"})
        row = {
            "pid": stranger.pid,
            "started_ticks": started_ticks(stranger.pid),
            "uuid": card.uuid,
            "memory_bytes": UNMANAGED_BYTES,
            "smact": 0.1,
        }
        (folder / "processes" / f"{stranger.pid}.json").write_text(json.dumps(row))
        _STRANGERS.append(stranger)


def strangers_go(cluster: Cluster) -> None:
    while _STRANGERS:
        stranger = _STRANGERS.pop()
        stranger.kill()
        stranger.wait()


def killed_after_a_put_back(cluster: Cluster) -> None:
    log = cluster.place.log / "prolog.log"

    def times() -> int:
        return log.read_text().count("requeued") if log.exists() else 0

    saved(cluster)
    seen = times()
    cluster.wait("a job is put back", lambda: times() > seen, 60)
    cluster.daemons.kill("slurmctld")
    strangers_go(cluster)
    cluster.clock.sleep(AWAY_S)
    cluster.start_slurmctld()


def test_slurmctld_dies_just_after_a_put_back(trials: Trials) -> None:
    trials.check(
        "slurmctld killed just after a put-back",
        killed_after_a_put_back,
        slurm_fault=slurmctld_killed,
        before=strangers_come,
        after=strangers_go,
        share=1.0,
    )
