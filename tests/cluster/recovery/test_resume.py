"""A job that saves what it did goes on after the end of its slot, a preemption and a recovery (examples/resume)."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from slurm_plugin.slurm.commands import SlurmCommands

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "resumes.py"
STEPS, EVERY, GROWS = 16, 5, 8


def started(jobs: Jobs, name: str, *more: str) -> int:
    wrap = f"exec python3 {PROGRAM} {jobs.folder} {jobs.folder}/checkpoints-{name} {' '.join(more)}"
    options = ("--gpus=1", "--requeue", "--open-mode=append", "--signal=B:USR1@60", "--comment=rad:memory=4G")
    return jobs.accepted(*options, f"--output=out-{name}", "--wrap", wrap)


def runs_of(text: str) -> list[list[int]]:
    """Return the steps of each run."""
    runs: list[list[int]] = []
    for line in text.splitlines():
        if line.startswith("from step "):
            runs.append([])
        elif line.startswith("step "):
            runs[-1].append(int(line.removeprefix("step ")))
    return runs


def test_work_that_was_saved_is_not_done_again(jobs: Jobs, cluster: Cluster) -> None:
    control = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)
    delay_s = control.requeue_delay_s()
    by_slot, by_admin = started(jobs, "slot"), started(jobs, "preempted")
    by_memory = started(jobs, "memory", str(GROWS))
    for job in (by_slot, by_admin):
        cluster.wait(f"job {job} trains", lambda job=job: "step 2\n" in jobs.output(job), 30)
    # What slurmctld sends at the end of a slot, as `--signal` asks; and what a preemption does to a job.
    cluster.slurm("scancel", "--batch", "--signal=USR1", str(by_slot))
    cluster.slurm("scontrol", "requeue", str(by_admin))
    for job in (by_slot, by_admin):
        jobs.wait(job, "PENDING")
        cluster.slurm("scontrol", "update", f"JobId={job}", f"StartTime=now+{delay_s}")  # not in two minutes
    for job in (by_slot, by_admin, by_memory):
        assert jobs.wait(job, "COMPLETED", timeout_s=90)["Restarts"] == "1"
    every_step = list(range(1, STEPS + 1))
    for job in (by_slot, by_admin):
        first, second = runs_of(jobs.output(job))
        assert first and first + second == every_step
    first, second = runs_of(jobs.output(by_memory))
    assert first == every_step[:GROWS] and second == every_step[GROWS // EVERY * EVERY :]
