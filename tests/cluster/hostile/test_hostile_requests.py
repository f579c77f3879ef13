"""A user changes the request of a booked job in every spelling: no job gets a whole GPU for one shard.

What a job holds in the ledger is compared with what Slurm gave it. Each attempt is named in docs/security-threats.md.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest

from lab.cluster import Cluster
from lab.config import SHARD_MIB, shards_of
from lab.daemons import LabError, wait_until
from lab.jobs import Jobs
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.units import from_mib
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.versions import traits

pytestmark = pytest.mark.cluster

GPU_SIZE_MIB = 40960
WHOLE = shards_of(GPU_SIZE_MIB)
WAITS = "while [ ! -e go ]; do sleep 0.1; done"
EXCLUSIVE = ("--gpus=1", "--comment=rad:policy=exclusive")
SHARED = ("--gpus=1", "--comment=rad:memory=12G")
TWO = ("--gres=gpu:2", "--comment=rad:memory=12G")
ONE_TASK = ("-N1", "-n1")

ATTEMPTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "per task, then no longer per node": (
        (*EXCLUSIVE, *ONE_TASK),
        ("TresPerTask={}shard:1", "TresPerNode="),
    ),
    "per task and no longer per node at once": (
        (*EXCLUSIVE, *ONE_TASK),
        ("TresPerTask={}shard:1 TresPerNode=",),
    ),
    "per job and no longer per node at once": (
        EXCLUSIVE,
        ("NumNodes=1-1 TresPerJob={}shard:1 TresPerNode=",),
    ),
    "per job, then no longer per node": ((*EXCLUSIVE, *ONE_TASK), ("TresPerJob={}shard:1", "TresPerNode=")),
    "per socket": ((*EXCLUSIVE, *ONE_TASK), ("TresPerSocket={}shard:1", "TresPerNode=")),
    "fewer per node": (EXCLUSIVE, ("TresPerNode={}shard:1",)),
    "fewer by Gres": (EXCLUSIVE, ("Gres=shard:1",)),
    "a shared job requests fewer": (SHARED, ("Gres=shard:1",)),
    "a shared job per task": ((*SHARED, *ONE_TASK), ("TresPerTask={}shard:1", "TresPerNode=")),
    "a shared job requests all": (SHARED, (f"Gres=shard:{WHOLE}",)),
    "a refused change": (EXCLUSIVE, ("TresPerTask={}shard:1 Features=none", "Gres=shard:1 Comment=x")),
    "one GPU of two": (TWO, ("Gres=gpu:1",)),
    "shards in place of two GPUs": (TWO, ("Gres=shard:1", "TresPerNode=")),
    "through another partition": (EXCLUSIVE, ("Partition=plain", "Gres=shard:1", "Partition=gpu")),
    "more tasks": ((*EXCLUSIVE, *ONE_TASK), ("TresPerTask={}shard:1", "TresPerNode=", "NumTasks=1")),
    "back and forth": (EXCLUSIVE, ("Gres=shard:1", f"Gres=shard:{WHOLE}", "Gres=shard:1")),
}


def slurm(cluster: Cluster) -> SlurmCommands:
    return SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)


def update(cluster: Cluster, job: int, words: str, *, user: str | None = "nobody") -> None:
    """Try a change; whether Slurm takes it differs from version to version."""
    prefix = traits(slurm(cluster).version()).gres_prefix
    try:
        cluster.slurm("scontrol", "update", f"JobId={job}", *words.format(prefix).split(" "), user=user)
    except CommandError:
        return


def started(jobs: Jobs, job: int) -> str:
    """Release a job and return what Slurm gave it; "" if it got nothing, or waits for what no node has."""
    cluster = jobs.cluster
    cluster.slurm("scontrol", "release", str(job))
    ended = ("RUNNING", "FAILED", "COMPLETED")

    def ended_or_runs() -> bool:
        return getattr(slurm(cluster).job(job), "state", "") in ended

    try:
        wait_until("it started", ended_or_runs, timeout_s=15, clock=cluster.clock)
    except LabError:
        with suppress(CommandError):  # from now on it starts no more, unless it has just started
            cluster.slurm("scontrol", "hold", str(job))
        if getattr(slurm(cluster).job(job), "state", "") == "PENDING":
            return ""
    return slurm(cluster).given(job)


def assert_holds_what_it_was_given(jobs: Jobs, job: int, given: str) -> None:
    def allocations() -> list[dict[str, Any]]:
        return [row for row in jobs.cluster.allocations("n0") if row["job_id"] == job]

    items = parse_gres(given)
    shards = count_of(items, "shard")
    if not shards and not count_of(items, "gpu"):
        assert allocations() == []
        return
    jobs.cluster.wait(f"the Prolog has reserved {given}", allocations, 20)
    allocated = allocations()
    if shards and shards < WHOLE:
        # its part of the GPU, where radd answered too late on a busy machine and nothing is signed
        most_bytes = shards * from_mib(GPU_SIZE_MIB) // WHOLE
        assert allocated[0]["kind"] == "shared", given
        assert shards * from_mib(SHARD_MIB) <= allocated[0]["booked_bytes"] <= most_bytes, given
    else:
        assert allocated[0]["kind"] == "whole" and len(allocated[0]["gpus"]) == max(
            1, count_of(items, "gpu")
        ), given


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_changed_request_gives_what_slurm_gives(jobs: Jobs, cluster: Cluster, attempt: str) -> None:
    options, changes = ATTEMPTS[attempt]
    job = jobs.accepted("-H", *options, "--wrap", WAITS)
    for words in changes:
        update(cluster, job, words)
    assert_holds_what_it_was_given(jobs, job, started(jobs, job))


def test_a_change_by_an_admin_gives_what_slurm_gives(jobs: Jobs, cluster: Cluster) -> None:
    job = jobs.accepted("-H", *EXCLUSIVE, "--wrap", WAITS)
    update(cluster, job, "Gres=shard:3", user=None)
    assert_holds_what_it_was_given(jobs, job, started(jobs, job))


def test_a_change_while_radd_is_away_drops_the_booking(jobs: Jobs, cluster: Cluster) -> None:
    job = jobs.accepted("-H", *EXCLUSIVE, *ONE_TASK, "--wrap", WAITS)
    cluster.daemons.stop("radd")
    try:
        for words in ("TresPerTask={}shard:1", "TresPerNode="):
            update(cluster, job, words)
        assert "rad2:" not in jobs.fields(job).get("Comment", "")
    finally:
        cluster.restart_radd()
    assert_holds_what_it_was_given(jobs, job, started(jobs, job))


def test_a_signed_booking_of_another_job_is_refused(jobs: Jobs, cluster: Cluster) -> None:
    rich = jobs.accepted("-H", *EXCLUSIVE, "--wrap", "true")
    signed_booking = jobs.fields(rich)["Comment"].split()[-1]
    assert signed_booking.startswith("rad2:whole:")
    poor = jobs.accepted("-H", "--gres=shard:1", f"--comment={signed_booking}", "--wrap", WAITS)
    update(cluster, poor, f"Comment={signed_booking}")
    plain = jobs.accepted(
        "-H", "-p", "plain", "--gres=shard:1", f"--comment={signed_booking}", "--wrap", WAITS
    )
    update(cluster, plain, "Partition=gpu")
    update(cluster, plain, f"Comment={signed_booking}")
    for job in (poor, plain):
        assert "rad2:whole" not in jobs.fields(job).get("Comment", "")
        given = started(jobs, job)
        assert given == "shard:1"
        if jobs.fields(job)["Partition"] == "gpu":  # not every version lets it move there
            assert_holds_what_it_was_given(jobs, job, given)


@pytest.mark.parametrize(
    "lies", [{}, {"SLURM_STEP_ID": "0", "SLURM_SHARDS_ON_NODE": "39"}], ids=["plain", "lies"]
)
def test_a_signed_booking_that_got_past_the_shim_stops_at_the_task_prolog(
    jobs: Jobs, cluster: Cluster, lies: dict[str, str]
) -> None:
    """As if slurmctld had lost job_submit.lua: root writes what a user would."""
    rich = jobs.accepted("-H", *EXCLUSIVE, "--wrap", "true")
    signed_booking = jobs.fields(rich)["Comment"].split()[-1]
    poor = jobs.submit("-H", "--gres=shard:1", "--wrap", "echo trained", env=lies).job_id
    assert poor is not None
    cluster.slurm("scontrol", "update", f"JobId={poor}", f"Comment={signed_booking}")
    cluster.slurm("scontrol", "release", str(poor))
    assert jobs.wait(poor)["JobState"] == "FAILED"
    text = jobs.output(poor)
    assert "RAD: Slurm allocated 1 shard to this job and it booked" in text and "trained" not in text


def test_forged_lines_of_scontrol_buy_nothing(jobs: Jobs, cluster: Cluster) -> None:
    forged = f"x\n     Nodes=n0 CPU_IDs=0 Mem=100 GRES=shard:{WHOLE}(IDX:0)\n"
    job = jobs.accepted("-H", "--gres=shard:5", f"--job-name={forged}", "--wrap", WAITS)
    update(cluster, job, "Gres=shard:1")
    given = started(jobs, job)
    assert given == "shard:1"
    assert_holds_what_it_was_given(jobs, job, given)


def test_an_ordinary_job_costs_slurmctld_no_question(jobs: Jobs, cluster: Cluster) -> None:
    job = jobs.accepted(*SHARED, "--wrap", "true")
    jobs.wait(job, "COMPLETED")
    log = (cluster.place.log / "prolog.log").read_text()
    assert re.search(rf"job={job} .* booking shared: ", log), log
