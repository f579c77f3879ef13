"""Runs without a Prolog, reruns that a full disk or an early reconciliation would end, cancelled jobs: on a real Slurm.

Slurm 22.05 starts a requeued job on its node again without a Prolog if slurmd still knows it. Other Slurms are made to:
the Prolog's script is replaced by one that does nothing, which is the same for whatever comes after it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from faults.site import allocations_of, jobs_of, trial_cluster

from lab.cluster import Cluster
from lab.files import rewrite
from lab.jobs import ENDED, Jobs
from slurm_plugin.slurm.commands import SlurmCommands

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SHARED = ("--gpus=1", "--comment=rad:memory=4G", "--open-mode=append")
GROWS = "python3 fake_train.py --memory 1.9G,9G --seconds 2.6"
MARKS = 'touch "ran-${SLURM_RESTART_COUNT:-0}"; sleep 4'
"""A script that leaves a file for each of its runs."""
NO_HOOK = "#!/bin/sh\nexit 0\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from trial_cluster("reruns")


@pytest.fixture
def jobs(cluster: Cluster) -> Iterator[Jobs]:
    yield jobs_of(cluster)
    cluster.cancel_jobs()


@contextmanager
def without(cluster: Cluster, *hooks: str) -> Iterator[None]:
    """Let hooks do nothing."""
    paths = [cluster.place.etc / f"{hook}.sh" for hook in hooks]
    before = [path.read_text() for path in paths]
    for path in paths:
        rewrite(path, NO_HOOK)
    try:
        yield
    finally:
        for path, text in zip(paths, before, strict=True):
            rewrite(path, text)


def submit(jobs: Jobs, *argv: str, wrap: str = MARKS, env: dict[str, str] | None = None) -> int:
    return jobs.accepted(*argv, "--wrap", wrap, user="nobody", env=env)


def start_soon(jobs: Jobs, job: int, restarts: int) -> None:
    """Let a requeued job start as early as this Slurm bears."""
    cluster = jobs.cluster

    def waits() -> bool:
        seen = jobs.fields(job)
        return (seen.get("JobState"), seen.get("Restarts")) == ("PENDING", str(restarts))

    cluster.wait(f"job {job} waits for run {restarts}", waits, 40)
    delay_s = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf)).requeue_delay_s()
    cluster.slurm("scontrol", "update", f"JobId={job}", f"StartTime=now+{delay_s}")


def requeued(jobs: Jobs, job: int) -> None:
    """Let a job's owner requeue it once it runs with what it booked."""
    cluster = jobs.cluster
    jobs.wait(job, "RUNNING", timeout_s=60)
    cluster.wait("it has begun", lambda: (jobs.folder / "ran-0").exists(), 30)
    cluster.slurm("scontrol", "requeue", str(job), user="nobody")


def settled(jobs: Jobs, job: int, restarts: int) -> str:
    """Wait until a run has started, ended or gone back; return the job's state."""

    def there() -> bool:
        seen = jobs.fields(job)
        started = (jobs.folder / f"ran-{restarts}").exists()
        return started or seen["JobState"] in ENDED or int(seen["Restarts"]) > restarts

    jobs.cluster.wait(f"run {restarts} of job {job} is decided", there, 60)
    return jobs.state(job)


# --- a run without a Prolog ---------------------------------------------------------------------------------------


def test_a_rerun_without_a_prolog_goes_back_and_the_next_one_runs(jobs: Jobs, cluster: Cluster) -> None:
    job = submit(jobs, *SHARED)
    requeued(jobs, job)
    start_soon(jobs, job, 1)
    with without(cluster, "prolog"):
        settled(jobs, job, 1)
        assert not (jobs.folder / "ran-1").exists(), "it ran without an allocation"
        start_soon(jobs, job, 2)
    ended = jobs.wait(job, timeout_s=90)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "2")
    assert (jobs.folder / "ran-2").exists()


def test_a_file_of_an_earlier_run_does_not_count_for_a_later_one(jobs: Jobs, cluster: Cluster) -> None:
    """Neither the Epilog of the first run nor the Prolog of the second did anything."""
    job = submit(jobs, *SHARED)
    jobs.wait(job, "RUNNING", timeout_s=60)
    with without(cluster, "epilog"):
        requeued(jobs, job)
        start_soon(jobs, job, 1)
    with without(cluster, "prolog"):
        settled(jobs, job, 1)
        assert not (jobs.folder / "ran-1").exists(), "it ran on the allocation of the run before"


def test_a_first_run_starts_where_no_prolog_of_rad_is_in_force(jobs: Jobs, cluster: Cluster) -> None:
    """As after an installation whose slurmd knows TaskProlog alone yet, and while RAD is being removed."""
    with without(cluster, "prolog"):
        job = submit(jobs, *SHARED)
        assert jobs.wait(job, timeout_s=60)["JobState"] == "COMPLETED"
    assert (jobs.folder / "ran-0").exists()


def test_a_restart_count_that_the_submitter_had_hurts_no_job(jobs: Jobs) -> None:
    """sbatch hands on what its submitter has; a job that ran twice submits another."""
    job = submit(jobs, *SHARED, env={"SLURM_RESTART_COUNT": "3"})
    ended = jobs.wait(job, timeout_s=60)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0")


@pytest.mark.parametrize(
    ("key", "value"), [("mode", '"observe"'), ("mode", '"off"'), ("placement", "false")], ids=str
)
def test_a_switch_that_is_turned_lets_it_run_as_without_rad(
    jobs: Jobs, cluster: Cluster, key: str, value: str
) -> None:
    job = submit(jobs, *SHARED)
    requeued(jobs, job)
    start_soon(jobs, job, 1)
    with cluster.changed_rad_toml(), without(cluster, "prolog"):
        cluster.set_rad(key, value)
        settled(jobs, job, 1)
        assert (jobs.folder / "ran-1").exists()


def test_a_partition_that_is_not_configured_is_none_of_this(jobs: Jobs, cluster: Cluster) -> None:
    job = submit(jobs, "--partition=plain", "--gres=gpu:1", "--open-mode=append")
    requeued(jobs, job)
    start_soon(jobs, job, 1)
    with without(cluster, "prolog"):
        settled(jobs, job, 1)
        assert (jobs.folder / "ran-1").exists()


# --- first the rerun, then the record -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "read-only"])
@pytest.mark.parametrize("which", ["state", "log"])
def test_a_job_out_of_memory_runs_again_whatever_cannot_be_written(
    jobs: Jobs, cluster: Cluster, kind: str, which: str
) -> None:
    folder = cluster.place.root / which if which == "state" else cluster.place.log
    found = folder.stat()
    size = f"size=64k,mode=755,uid={found.st_uid},gid={found.st_gid}"
    mounts = [["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]]
    if kind == "read-only":
        mounts = [["mount", "--bind", str(folder), str(folder)]]
        mounts.append(["mount", "-o", "remount,bind,ro", str(folder)])
    for mount in mounts:
        subprocess.run(mount, check=True)
    try:
        if kind == "full":
            subprocess.run(["sh", "-c", f"cat /dev/zero > {folder}/filler"], check=False, capture_output=True)
        job = submit(jobs, *SHARED, wrap=GROWS.replace("1.9G,9G", "3.9G,9G"))
        ended = jobs.wait(job, "COMPLETED", timeout_s=90)
        assert ended["Restarts"] == "1"
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


# --- one observation that is thrown away --------------------------------------------------------------------------


def test_a_run_whose_slurmstepd_was_killed_runs_again_although_a_hook_reconciled_first(
    jobs: Jobs, cluster: Cluster
) -> None:
    job = submit(jobs, *SHARED, wrap="touch ran-0; sleep 600")
    cluster.wait(
        "it is there", lambda: (jobs.folder / "ran-0").exists() and bool(allocations_of(cluster, job)), 60
    )
    cluster.daemons.signal("monitor-n0", signal.SIGSTOP)
    try:
        _kill_run(job)
        start_s = cluster.clock.monotonic_s()
        cluster.wait("it is unconfirmed", lambda: cluster.clock.monotonic_s() - start_s > 50, 60)
        # Four GPUs of its own find one in use, so its Prolog reconciles before it puts the job back.
        other = submit(jobs, "--gres=gpu:4", wrap="true")
        cluster.wait("a Prolog has reconciled", lambda: _is_decided(jobs, other), 60)
    finally:
        cluster.daemons.signal("monitor-n0", signal.SIGCONT)
    cluster.wait("it runs again", lambda: jobs.restarts(job) == 1, 90)


def _is_decided(jobs: Jobs, job: int) -> bool:
    seen = jobs.fields(job)
    return seen["Restarts"] != "0" or seen["JobState"] in ENDED or seen.get("Reason") == "Resources"


def _kill_run(job: int) -> None:
    """Kill (-9) slurmstepd and all that it started."""
    found = subprocess.run(
        ["pgrep", "-f", rf"^slurmstepd: \[{job}\."], capture_output=True, text=True, check=False
    )
    for step in map(int, found.stdout.split()):
        for pid in (step, *_children(step)):
            with suppress(ProcessLookupError):  # ended meanwhile: its parent was killed first
                os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    children = [int(one) for one in found.stdout.split()]
    return [*children, *(below for one in children for below in _children(one))]


# --- a job that its owner cancels ---------------------------------------------------------------------------------


def test_a_cancel_after_the_requeue_holds(jobs: Jobs, cluster: Cluster) -> None:
    """Also while it is still completing, with our change of it on its way."""
    found = [submit(jobs, *SHARED, wrap=GROWS.replace("1.9G,9G", "3.9G,9G")) for _ in range(4)]
    for job, pause_s in zip(found, (0.0, 0.2, 0.5, 1.0), strict=True):
        cluster.wait("it is requeued", lambda job=job: jobs.restarts(job) == 1, 60)
        cluster.clock.sleep(pause_s)
        cluster.slurm("scancel", str(job), user="nobody")
    for job in found:
        jobs.wait(job, "CANCELLED", timeout_s=20)
    follower = submit(jobs, *SHARED, wrap="true")
    jobs.wait(follower, "COMPLETED", timeout_s=60)
    assert [jobs.state(job) for job in found] == ["CANCELLED"] * 4
    assert not any(allocations_of(cluster, job) for job in found)
