"""A requeued job starts when the GPU that it lacks is free, not when a doubled delay is over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.load import equal_nodes
from lab.place import ClusterSpec, Place
from prolog.requeue import LONGEST_DELAY_S
from slurm_plugin.slurm.commands import SlurmCommands
from tests.cluster.conftest import jobs_on, started

pytestmark = pytest.mark.cluster
WAITS = "while [ ! -e {} ]; do sleep 0.1; done"


@pytest.fixture(scope="module")
def untyped(place: Place) -> Iterator[Cluster]:
    """A cluster whose gres.conf does without Type=, as `rad doctor` warns of."""
    yield from started(place, ClusterSpec(nodes=equal_nodes(1), typed=False), name="untyped")


@pytest.fixture
def untyped_jobs(untyped: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(untyped, request)


def full_but_one(jobs: Jobs, cluster: Cluster) -> None:
    """Let three jobs share a GPU each, so that one of the four is idle; each ends when its file `goN` is there."""
    holders = [
        jobs.accepted("--gpus=1", "--comment=rad:memory=30G", "--wrap", WAITS.format(f"go{number}"))
        for number in range(3)
    ]
    for job in holders:
        jobs.wait(job, "RUNNING")
    cluster.wait("all are placed", lambda: len(cluster.allocations("n0")) == 3, 20)


def test_slurm_itself_lets_a_job_wait_for_gpus_whose_shards_are_in_use(jobs: Jobs, cluster: Cluster) -> None:
    """On every version, where GPUs have a type; on 22.05 as long as no job that shares those GPUs has ended."""
    full_but_one(jobs, cluster)
    narrow = jobs.accepted("--gres=gpu:1", "--wrap", "true")
    assert jobs.wait(narrow, timeout_s=30)["Restarts"] == "0"
    wide = jobs.accepted("--gres=gpu:2", "--wrap", "true")
    cluster.wait("Slurm has looked at it", lambda: jobs.fields(wide).get("Reason") == "Resources", 20)
    assert jobs.fields(wide)["JobState"] == "PENDING" and jobs.fields(wide)["Restarts"] == "0"
    for number in range(3):
        (jobs.folder / f"go{number}").touch()
    done = jobs.wait(wide, timeout_s=30)
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "0")


def test_the_epilog_of_the_job_on_the_gpu_wakes_the_waiting_job(untyped_jobs: Jobs, untyped: Cluster) -> None:
    """Before 23.11.5 Slurm gives two such GPUs away while shards of them are in use; the Prolog puts the job back."""
    jobs, cluster = untyped_jobs, untyped
    control = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)
    version = control.version()
    full_but_one(jobs, cluster)
    wide = jobs.accepted("--gres=gpu:2", "--wrap", "true")
    if version >= (23, 11, 5):
        cluster.wait("Slurm itself lets it wait", lambda: jobs.state(wide) == "PENDING", 10)
        return
    waiting = cluster.place.run / "n0" / "waiting" / str(wide)
    cluster.wait("it is requeued", waiting.exists, 20)
    radd_log = cluster.place.log / "radd.out"
    cluster.wait("radd has set its delay", lambda: f"job {wide}: may start in" in radd_log.read_text(), 30)
    cluster.slurm(
        "scontrol", "update", f"JobId={wide}", f"StartTime=now+{LONGEST_DELAY_S}"
    )  # as after many tries
    (jobs.folder / "go0").touch()
    least_s = control.requeue_delay_s()
    done = jobs.wait(wide, "COMPLETED", timeout_s=least_s + 40)
    assert int(done["Restarts"]) >= 1
    assert not waiting.exists()
    for number in range(3):
        (jobs.folder / f"go{number}").touch()
