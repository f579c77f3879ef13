"""A job that was put back starts when the GPU that it lacks is free, not when a doubled delay is over."""

from __future__ import annotations

import pytest
from cluster_jobs import submit

from lab.cluster import Cluster
from lab.jobs import Jobs
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.versions import requeue_delay_s

pytestmark = pytest.mark.cluster
WAITS = "while [ ! -e {} ]; do sleep 0.1; done"


def test_the_epilog_of_whoever_held_the_gpu_wakes_who_waits(jobs: Jobs, cluster: Cluster) -> None:
    """Before 23.11.5 Slurm gives two GPUs away whose shards are in use; the Prolog puts such a job back."""
    control = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)
    version = control.version()
    holders = [
        submit(jobs, "--gpus=1", "--comment=rad:memory=30G", "--wrap", WAITS.format(f"go{number}"))
        for number in range(3)
    ]
    for job in holders:
        jobs.wait(job, "RUNNING")
    cluster.wait("all are placed", lambda: len(cluster.reservations("n0")) == 3, 20)
    wide = submit(jobs, "--gres=gpu:2", "--wrap", "true")
    if version >= (23, 11, 5):
        cluster.wait("Slurm itself lets it wait", lambda: jobs.state(wide) == "PENDING", 10)
        return
    waiting = cluster.place.run / "n0" / "waiting" / str(wide)
    cluster.wait("it is put back", waiting.exists, 20)
    radd_log = cluster.place.log / "radd.out"
    cluster.wait("radd has set its delay", lambda: f"job {wide}: may start in" in radd_log.read_text(), 30)
    cluster.slurm("scontrol", "update", f"JobId={wide}", "StartTime=now+600")  # as after many tries
    (jobs.folder / "go0").touch()
    least_s = requeue_delay_s(version, control.config().get("AuthInfo", ""))
    done = jobs.wait(wide, "COMPLETED", timeout_s=least_s + 40)
    assert int(done["Restarts"]) >= 1
    assert not waiting.exists()
    for number in range(3):
        (jobs.folder / f"go{number}").touch()
