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
_UNMANAGED: list[subprocess.Popen[bytes]] = []


def unmanaged_come(cluster: Cluster) -> None:
    """Fill each GPU for the most part with a process of no job, so that no exclusive job may start."""
    folder = cluster.place.gpus("n0")
    for physical_gpu in SimulatedGpus(folder).gpus():
        unmanaged = subprocess.Popen(["sleep", "600"], env={"PATH": "/usr/bin:/bin"})
        row = {
            "pid": unmanaged.pid,
            "started_ticks": started_ticks(unmanaged.pid),
            "uuid": physical_gpu.uuid,
            "memory_bytes": UNMANAGED_BYTES,
            "smact": 0.1,
        }
        (folder / "processes" / f"{unmanaged.pid}.json").write_text(json.dumps(row))
        _UNMANAGED.append(unmanaged)


def unmanaged_go(cluster: Cluster) -> None:
    while _UNMANAGED:
        unmanaged = _UNMANAGED.pop()
        unmanaged.kill()
        unmanaged.wait()


def killed_after_a_requeue(cluster: Cluster) -> None:
    log = cluster.place.log / "prolog.log"

    def times() -> int:
        return log.read_text().count("requeued") if log.exists() else 0

    saved(cluster)
    seen = times()
    cluster.wait("a job is requeued", lambda: times() > seen, 60)
    cluster.daemons.kill("slurmctld")
    unmanaged_go(cluster)
    cluster.clock.sleep(AWAY_S)
    cluster.start_slurmctld()


def test_slurmctld_dies_just_after_a_requeue(trials: Trials) -> None:
    trials.check(
        "slurmctld killed just after a put-back",
        killed_after_a_requeue,
        slurm_fault=slurmctld_killed,
        before=unmanaged_come,
        after=unmanaged_go,
        share=1.0,
    )
