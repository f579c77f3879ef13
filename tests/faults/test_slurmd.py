"""slurmd is killed while jobs run, and the node restarts under them."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.trial import Trials

from lab.cluster import Cluster
from lab.daemons import kill_leftovers
from lab.load import equal_nodes
from slurm_plugin.core.clock import Deadline, SystemClock
from slurm_plugin.core.ledger.store import LedgerStore, boot_id

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

AWAY_S = 5.0
REQUEUED_S = 200.0
"""Jobs of a node that failed wait for Slurm's own delay, 120 s, before they run again."""

UNLAUNCHED_S = 130.0
"""A job whose Prolog died with slurmd is unconfirmed after half a minute, runs again after Slurm's requeue delay."""

(NODE,) = equal_nodes(1)


def slurmd_killed(cluster: Cluster) -> None:
    cluster.daemons.kill("slurmd-n0")
    cluster.clock.sleep(AWAY_S)
    cluster.start_node(NODE)


def rebooted(cluster: Cluster) -> None:
    """End all that runs on the node, as a power cut does, and make its state that of an earlier boot."""
    cluster.daemons.kill("slurmd-n0")
    kill_leftovers(cluster.place.slurm_conf)
    if cluster.daemons.pid("monitor-n0") is not None:
        cluster.daemons.kill("monitor-n0")
    age(cluster.place.run / "n0")
    cluster.clock.sleep(AWAY_S)
    cluster.start_node(NODE)
    if cluster.daemons.pid("radd") is not None:
        cluster.start_monitor(NODE)


def age(folder: Path) -> None:
    """Make the node's state that of an earlier boot: the ledger, and the boot's id wherever else it stands."""
    clock, before = SystemClock(), "00000000-0000-4000-8000-000000000000"
    ledger = LedgerStore(folder, clock=clock, boot_id=boot_id()).read().ledger
    store = LedgerStore(folder, clock=clock, boot_id=before)
    with store.locked(Deadline(clock, 5.0)):
        store.read()
        store.write(ledger)
    new = boot_id().encode()
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("ledger") and new in (data := path.read_bytes()):
            path.write_bytes(data.replace(new, before.encode()))


def test_slurmd_is_killed_under_shared_jobs(trials: Trials) -> None:
    trials.check("slurmd killed for 5 s", slurmd_killed, slurm_fault=slurmd_killed, give_up_s=UNLAUNCHED_S)


def test_the_node_is_rebooted_with_a_full_ledger(trials: Trials) -> None:
    trials.check(
        "node rebooted, ledger full of the boot before", rebooted, slurm_fault=rebooted, give_up_s=REQUEUED_S
    )
