"""A job that has settled lends its room, and everything restarts: radd, slurmctld, slurmd, rad-monitor."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.site import CHECKOUT, remove, trial_place
from faults.trial import FIRST_JOB

from lab import config
from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec
from slurm_plugin.core.ledger.codec import reservation_from
from slurm_plugin.core.ledger.trim import SETTLED_SAMPLES
from slurm_plugin.core.records.node import Reservation
from slurm_plugin.core.units import GIB, to_mib_down
from slurm_plugin.monitor.window import read_job

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

HERE = Path(__file__).resolve().parent
NODE = NodeSpec(name="n0", gpu_mib=(40960,))
OVERSUBSCRIBED = 1.5
"""Shards of a GPU for each GiB that it has."""
AWAY_S = 3.0
MODEL = "model=models/resnet50_torchinfo.txt,batch_size=256"
OF_ESTIMATE = 0.6


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """One GPU with more shards than memory, in a partition that trims."""
    shards_of = config.shards_of
    monkeypatch.setattr(config, "shards_of", lambda mib: int(shards_of(mib) * OVERSUBSCRIBED))
    running = Cluster(trial_place("trim"))
    try:
        running.up(ClusterSpec(nodes=(NODE,), slurm_conf=(FIRST_JOB,)))
        running.set_rad("trim", "true")
        yield running
    finally:
        running.down()
        remove(running.place.root)


@pytest.fixture
def jobs(cluster: Cluster) -> Jobs:
    folder = cluster.place.root / "work"
    shutil.copytree(CHECKOUT / "examples", folder)
    folder.chmod(0o1777)
    return Jobs(cluster, folder)


def submit(jobs: Jobs, name: str, rad: str, *, user: str = "nobody") -> int:
    command = f"exec python3 {HERE / 'settler.py'} {jobs.folder} {name}"
    job = jobs.submit("--gpus=1", f"--comment=rad:{rad}", "--open-mode=append", "--wrap", command, user=user)
    assert job.job_id is not None, job.messages
    return job.job_id


def tell(jobs: Jobs, name: str, word: str | int) -> None:
    draft = jobs.folder / f"draft.{name}"
    draft.write_text(str(word))
    draft.replace(jobs.folder / f"to.{name}")


def held_of(cluster: Cluster) -> dict[int, Reservation]:
    found = [reservation_from(row) for row in cluster.reservations("n0")]
    return {held.job_id: held for held in found}


def placed(cluster: Cluster, job: int, timeout_s: float = 40.0) -> Reservation:
    cluster.wait(f"job {job} is placed", lambda: job in held_of(cluster), timeout_s)
    return held_of(cluster)[job]


def steady_of(cluster: Cluster, job: int) -> int:
    usage = read_job(cluster.place.run / "n0", job)
    return 0 if usage is None else usage.steady_samples


def radd(cluster: Cluster) -> None:
    cluster.daemons.kill("radd")
    cluster.clock.sleep(AWAY_S)
    cluster.start_radd()


def slurmctld(cluster: Cluster) -> None:
    cluster.daemons.stop("slurmctld")
    cluster.clock.sleep(AWAY_S)
    cluster.start_slurmctld()
    cluster.wait("slurmctld answers", cluster.answers, 30)


def slurmd(cluster: Cluster) -> None:
    cluster.daemons.kill("slurmd-n0")
    cluster.clock.sleep(AWAY_S)
    cluster.start_node(NODE)


def monitor(cluster: Cluster) -> None:
    cluster.daemons.kill("monitor-n0")
    cluster.clock.sleep(AWAY_S)
    cluster.start_monitor(NODE)


def everything(cluster: Cluster) -> None:
    cluster.daemons.stop("slurmctld")
    for name in ("radd", "slurmd-n0", "monitor-n0"):
        cluster.daemons.kill(name)
    cluster.start_monitor(NODE)
    cluster.start_node(NODE)
    cluster.start_radd()
    cluster.start_slurmctld()
    cluster.wait("slurmctld answers", cluster.answers, 30)


def test_what_a_settled_job_lent_is_lent_once_whatever_restarts(cluster: Cluster, jobs: Jobs) -> None:
    lender = submit(jobs, "lender", MODEL)
    before = placed(cluster, lender)
    assert before.estimate_bytes is not None
    tell(jobs, "lender", to_mib_down(int(before.estimate_bytes * OF_ESTIMATE)))
    cluster.wait(
        "half of the samples are there", lambda: steady_of(cluster, lender) > SETTLED_SAMPLES // 2, 120
    )
    seen = steady_of(cluster, lender)
    monitor(cluster)
    cluster.wait("the monitor samples again", lambda: steady_of(cluster, lender) > seen, 30)
    assert steady_of(cluster, lender) < SETTLED_SAMPLES
    cluster.wait("the lender settles", lambda: steady_of(cluster, lender) > SETTLED_SAMPLES + 2, 150)

    borrower = submit(jobs, "borrower", "memory=20G", user="games")
    placed(cluster, borrower)
    held = held_of(cluster)
    assert held[lender].settled and held[lender].booked_bytes < before.booked_bytes
    (card,) = config.cards_of(NODE)
    room_bytes = card.usable_bytes - sum(one.booked_bytes for one in held.values())
    assert before.booked_bytes + 20 * GIB > card.usable_bytes, "without what was given back it does not fit"
    third = submit(jobs, "third", f"memory={to_mib_down(room_bytes) + 1024}M")
    cluster.wait("the third is put back", lambda: jobs.restarts(third) > 0, 40)

    for restart in (radd, slurmctld, slurmd, monitor, everything):
        restart(cluster)
        cluster.wait("the node is up", lambda: "up" in cluster.slurm("sinfo", "-h", "-o", "%a"), 30)
        now = held_of(cluster)
        assert {job: now.get(job) for job in held} == held, restart.__name__
        assert third not in now, restart.__name__
        for job in held:
            fields = jobs.fields(job)
            assert (fields["JobState"], fields["Restarts"]) == ("RUNNING", "0"), restart.__name__

    tell(jobs, "lender", to_mib_down(before.booked_bytes) - 256)
    cluster.wait("who takes back what it lent is stopped", lambda: jobs.restarts(lender) > 0, 60)
    tell(jobs, "borrower", 20 * 1024 - 512)
    cluster.clock.sleep(AWAY_S)
    tell(jobs, "borrower", "end")
    done = jobs.wait(borrower, "COMPLETED", timeout_s=60)
    assert done["Restarts"] == "0" and "OutOfMemory" not in jobs.output(borrower)
    tell(jobs, "third", "end")
    for job in (third, lender):
        jobs.wait(job, "COMPLETED", timeout_s=240)
    cluster.wait("nothing is left reserved", lambda: not held_of(cluster), 60)
    assert "drain" not in cluster.slurm("sinfo", "-h", "-o", "%T")
