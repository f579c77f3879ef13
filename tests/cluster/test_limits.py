"""A limit on GPUs binds users of shared GPUs too, once the accounts are set as `rad doctor` says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lab.cluster import Cluster
from lab.fix import findings, fix
from lab.jobs import Jobs
from lab.place import ClusterSpec, Place
from slurm_plugin.core.errors import CommandError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.time_limits import TimeLimits
from tests.cluster.conftest import jobs_on, started

pytestmark = pytest.mark.cluster

SHARDS = 39
USER = "games"
SITE = ("AccountingStorageTRES=gres/gpu", "AccountingStorageEnforce=associations,limits,qos")
TRAIN = "python3 fake_train.py --memory {} --seconds {}"


@pytest.fixture(scope="module")
def own(place: Place) -> Iterator[Cluster]:
    spec = ClusterSpec(accounts=True, slurm_conf=SITE)
    yield from started(replace(place, root=place.root.with_name(f"{place.root.name}-limits")), spec)


@pytest.fixture
def jobs(own: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(own, request)


def test_a_job_in_a_reservation_of_a_gpu_starts_there(jobs: Jobs, own: Cluster) -> None:
    """It is made before anything else runs: Slurm reserves GPUs of idle nodes alone."""
    gpu = ("NodeCnt=1", "TRESPerNode=gres/gpu=1", "StartTime=now", "Duration=5", f"Users={USER}")
    try:
        own.slurm("scontrol", "create", "reservation", "ReservationName=ours", *gpu)
    except CommandError as exc:
        assert "Unknown parameter" in exc.output
        pytest.skip("this Slurm reserves no GPUs")
    wrap = ("--comment=rad:memory=4G", "--wrap", TRAIN.format("3G", 0.5))
    job = jobs.submit("--reservation=ours", "--gpus=1", *wrap, user=USER)
    assert job.job_id is not None, job.messages
    try:
        assert jobs.wait(job.job_id)["JobState"] == "COMPLETED", jobs.output(job.job_id)
    finally:
        own.cancel_jobs()
        own.slurm("scontrol", "delete", "ReservationName=ours")


def about_accounts(cluster: Cluster) -> list[dict[str, Any]]:
    return [each for each in findings(cluster) if each["subject"] == "accounts"]


def worth(row: dict[str, str]) -> int:
    """Return what a running job holds, in shards."""
    given = dict(item.partition("=")[::2] for item in row.get("AllocTRES", row.get("TRES", "")).split(","))
    return SHARDS * int(given.get("gres/gpu", 0)) + int(given.get("gres/shard", 0))


def test_a_user_who_may_have_one_gpu_has_no_more_of_them(jobs: Jobs, own: Cluster) -> None:
    own.slurm("sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxTRESPerUser=gres/gpu=1")
    found = about_accounts(own)
    assert found
    for finding in found:
        fix(own, finding)
    own.slurm("scontrol", "reconfigure")
    own.wait("doctor is content", lambda: not about_accounts(own), 40)

    asked = [
        ("--gpus=1", "--comment=rad:memory=12G", "--wrap", TRAIN.format("11G", 4)),
        ("--gpus=1", "--comment=rad:memory=12G", "--wrap", TRAIN.format("11G", 4)),
        ("--gpus=1", "--comment=rad:policy=exclusive", "--wrap", TRAIN.format("11G", 1)),
        ("--partition=plain", "--gpus=1", "--wrap", TRAIN.format("11G", 1)),
        ("--gpus=1", "--comment=rad:memory=4G", "--wrap", TRAIN.format("3.8G,20G", 1)),
        ("--gres=shard:30", "--wrap", TRAIN.format("11G", 1)),
    ]
    ids = []
    for argv in asked:
        job = jobs.submit(*argv, user=USER)
        assert job.job_id is not None, job.messages
        ids.append(job.job_id)
    most, together = 0, 0

    def over() -> bool:
        nonlocal most, together
        rows = jobs.all_fields()
        running = [row for row in rows.values() if row.get("JobState") == "RUNNING"]
        most, together = max(most, sum(map(worth, running))), max(together, len(running))
        return all(rows.get(job, {}).get("JobState") == "COMPLETED" for job in ids)

    own.wait(f"jobs {ids} complete", over, 150)
    assert most <= SHARDS, "more than one GPU at a time"
    assert together > 1, "the limit keeps jobs from sharing"
    assert jobs.fields(ids[4])["Restarts"] == "1"


def test_more_time_stays_within_what_a_qos_and_an_account_allow(jobs: Jobs, own: Cluster) -> None:
    """Slurm takes a longer limit from root without a look at MaxWall: a user would pass it through us."""
    submitted = jobs.submit(
        "--gpus=1", "--time=10", "--comment=rad:memory=4G", "--wrap", "sleep 60", user=USER
    )
    assert submitted.job_id is not None, submitted.messages
    jobs.wait(submitted.job_id, "RUNNING")
    slurm = SlurmCommands(slurm_conf=str(own.place.slurm_conf), timeout_s=10)
    limits, now_s = TimeLimits(slurm), own.clock.now_s()
    end = limits.of(submitted.job_id)
    assert end is not None and (end.qos, end.account, end.user) == ("normal", "lab", USER)
    modify = ("sacctmgr", "-i", "modify")

    def space_is(margin_s: float) -> None:
        own.wait(f"room is {margin_s}", lambda: limits.margin_s(end, node="n0", now_s=now_s) == margin_s, 20)

    space_is(float("inf"))
    try:
        own.slurm(*modify, "qos", "normal", "set", "MaxWall=15")
        space_is(300.0)
        own.slurm(*modify, "account", "lab", "set", "MaxWall=12")
        space_is(120.0)
        own.slurm(*modify, "user", USER, "set", "MaxWall=11")
        space_is(60.0)
    finally:
        own.slurm(*modify, "user", USER, "set", "MaxWall=-1")
        own.slurm(*modify, "account", "lab", "set", "MaxWall=-1")
        own.slurm(*modify, "qos", "normal", "set", "MaxWall=-1")
