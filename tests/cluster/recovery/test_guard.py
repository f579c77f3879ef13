"""A job that takes what it did not book is stopped; which it cost runs again as it was, and says whose fault it was."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.config import shards_of
from lab.jobs import Jobs
from slurm_plugin.monitor.window import read_job
from tests.timing import within

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.any_slurm(
        "rad-monitor reads GPUs and processes; what Slurm does with a requeue is asked for in test_recovery"
    ),
]

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
STOPPED_S = 5.0
"""Two samples, the process that starts, and a busy machine."""

RERUN_S = 60
"""Below Slurm's own delay of two minutes."""


def submit(jobs: Jobs, program: str, memory: str, *words: str, user: str) -> int:
    return jobs.accepted(
        "--gpus=1",
        f"--comment=rad:memory={memory}",
        "--open-mode=append",
        "--wrap",
        " ".join(map(str, ("exec python3", PROGRAMS / program, jobs.folder, *words))),
        user=user,
    )


def test_an_overrunning_job_is_stopped_and_its_victim_runs_again(jobs: Jobs, cluster: Cluster) -> None:
    victim = submit(jobs, "victim.py", "8G", user="nobody")
    overrunner = submit(jobs, "overrun.py", "4G", user="games")
    cluster.wait("the theft", lambda: (jobs.folder / "stolen").exists(), 60)
    stolen_s = cluster.clock.monotonic_s()
    cluster.wait(
        "the overrunning job is stopped",
        lambda: jobs.state(overrunner) != "RUNNING" or jobs.restarts(overrunner) > 0,
        30,
    )
    assert cluster.clock.monotonic_s() - stolen_s < within(STOPPED_S)

    lost = jobs.wait(victim, "COMPLETED", timeout_s=RERUN_S)
    assert lost["Restarts"] == "1"
    assert lost["TresPerNode"].endswith("shard:8")  # as it was, and nothing counted against it
    assert f"job {overrunner}" in lost["AdminComment"]
    text = jobs.output(victim)
    assert "torch.OutOfMemoryError" in text and "6 GiB, as booked" in text

    stopped = jobs.wait(overrunner, "COMPLETED", timeout_s=RERUN_S)
    assert stopped["Restarts"] == "1"
    assert stopped["TresPerNode"].rpartition(":")[2] in {str(shards_of(40960)), "1"}
    assert "used more GPU memory than it booked" in stopped["AdminComment"]
    text = jobs.output(overrunner)
    assert "stole" in text and "was not stopped" not in text and "30 GiB of my own" in text


def test_a_victim_of_an_overrun_that_no_sample_shows_runs_again(jobs: Jobs, cluster: Cluster) -> None:
    """Between two samples: the victim is taken for one that needs more, and gets a GPU of its own."""
    victim = submit(jobs, "victim.py", "8G", user="nobody")
    overrunner = submit(jobs, "overrun.py", "4G", "unseen", user="games")
    jobs.wait(overrunner, "RUNNING")
    cluster.wait("the victim was sampled", lambda: read_job(cluster.place.run / "n0", victim) is not None, 30)
    cluster.daemons.signal("monitor-n0", signal.SIGSTOP)
    try:
        (jobs.folder / "go").touch()
        cluster.wait("the theft is over", (jobs.folder / "returned").exists, 30)
    finally:
        cluster.daemons.signal("monitor-n0", signal.SIGCONT)
    lost = jobs.wait(victim, "COMPLETED", timeout_s=RERUN_S)
    assert lost["Restarts"] == "1"
    text = jobs.output(victim)
    assert "torch.OutOfMemoryError" in text and "6 GiB, as booked" in text


def test_an_honest_job_is_not_touched(jobs: Jobs) -> None:
    """It holds its booking to the last MiB, in two processes, over many samples."""
    wrap = (
        "python3 fake_train.py --memory 2G --seconds 6 & python3 fake_train.py --memory 2G --seconds 6 & wait"
    )
    job = jobs.accepted("--gpus=1", "--comment=rad:memory=4G", "--wrap", wrap)
    done = jobs.wait(job, "COMPLETED", timeout_s=40)
    assert done["Restarts"] == "0"
    assert "overrun" not in done.get("AdminComment", "")
