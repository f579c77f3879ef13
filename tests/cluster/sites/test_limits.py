"""A limit on GPUs binds users of shared GPUs too, once the accounts are set as `rad doctor` says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lab.cluster import Cluster
from lab.fix import findings, fix
from lab.jobs import Jobs
from lab.place import ClusterSpec, Place
from slurm_plugin.core.errors import CommandError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.time_limits import TimeLimits
from tests.cluster.conftest import started
from tests.cluster.trainings import follow, train

pytestmark = pytest.mark.cluster

SHARDS = 39
USER = "games"
SITE = ("AccountingStorageTRES=gres/gpu", "AccountingStorageEnforce=associations,limits,qos")


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    spec = ClusterSpec(accounts=True, slurm_conf=SITE)
    yield from started(place, spec, name="limits")


def test_a_job_in_a_reservation_of_a_gpu_starts_there(jobs: Jobs, cluster: Cluster) -> None:
    """It is made before anything else runs: Slurm reserves GPUs of idle nodes alone."""
    gpu = ("NodeCnt=1", "TRESPerNode=gres/gpu=1", "StartTime=now", "Duration=5", f"Users={USER}")
    try:
        cluster.slurm("scontrol", "create", "reservation", "ReservationName=games", *gpu)
    except CommandError as exc:
        assert "Unknown parameter" in exc.output
        pytest.skip("this Slurm reserves no GPUs")
    wrap = ("--comment=rad:memory=4G", "--wrap", "python3 fake_train.py --memory 3G --seconds 0.5")
    job = jobs.accepted("--reservation=games", "--gpus=1", *wrap, user=USER)
    try:
        assert jobs.wait(job)["JobState"] == "COMPLETED", jobs.output(job)
    finally:
        cluster.cancel_jobs()
        cluster.slurm("scontrol", "delete", "ReservationName=games")


def about_accounts(cluster: Cluster) -> list[dict[str, Any]]:
    return [each for each in findings(cluster) if each["subject"] == "accounts"]


def worth(row: Mapping[str, str]) -> int:
    """Return what a running job holds, in shards."""
    given = dict(item.partition("=")[::2] for item in row.get("AllocTRES", row.get("TRES", "")).split(","))
    return SHARDS * int(given.get("gres/gpu", 0)) + int(given.get("gres/shard", 0))


def test_a_user_who_may_have_one_gpu_has_no_more_of_them(jobs: Jobs, cluster: Cluster) -> None:
    cluster.slurm("sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxTRESPerUser=gres/gpu=1")
    found = about_accounts(cluster)
    assert found
    for finding in found:
        fix(cluster, finding)
    cluster.slurm("scontrol", "reconfigure")
    cluster.wait("doctor is content", lambda: not about_accounts(cluster), 40)

    requests = [
        ("--gpus=1", "--comment=rad:memory=12G", "--wrap", train("11G")),
        ("--gpus=1", "--comment=rad:memory=12G", "--wrap", train("11G")),
        ("--gpus=1", "--comment=rad:policy=exclusive", "--wrap", train("11G")),
        ("--partition=plain", "--gpus=1", "--wrap", train("11G")),
        ("--gpus=1", "--comment=rad:memory=4G", "--wrap", train("3.8G,20G")),
        ("--gres=shard:30", "--wrap", train("11G")),
    ]
    ids = []
    for argv in requests:
        job = jobs.submit(*argv, user=USER)
        assert job.job_id is not None, job.messages
        ids.append(job.job_id)
    held: list[int] = []

    def look(rows: Mapping[int, Mapping[str, str]]) -> None:
        held.append(sum(worth(row) for row in rows.values() if row.get("JobState") == "RUNNING"))

    follow(jobs, ids, together=ids[:2], look=look, timeout_s=150)
    assert max(held) <= SHARDS, "more than one GPU at a time"
    assert jobs.fields(ids[4])["Restarts"] == "1"


def test_more_time_stays_within_what_a_qos_and_an_account_allow(jobs: Jobs, cluster: Cluster) -> None:
    """Slurm takes a longer limit from root without a look at MaxWall: a user would pass it through us."""
    submitted = jobs.accepted(
        "--gpus=1", "--time=10", "--comment=rad:memory=4G", "--wrap", "sleep 600", user=USER
    )
    jobs.wait(submitted, "RUNNING")
    slurm = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)
    limits, now_s = TimeLimits(slurm), cluster.clock.now_s()
    end = limits.of(submitted)
    assert end is not None and (end.qos, end.account, end.user) == ("normal", "lab", USER)
    modify = ("sacctmgr", "-i", "modify")

    def space_is(margin_s: float) -> None:
        cluster.wait(
            f"the margin is {margin_s}", lambda: limits.margin_s(end, node="n0", now_s=now_s) == margin_s, 20
        )

    space_is(float("inf"))
    try:
        cluster.slurm(*modify, "qos", "normal", "set", "MaxWall=15")
        space_is(300.0)
        cluster.slurm(*modify, "account", "lab", "set", "MaxWall=12")
        space_is(120.0)
        cluster.slurm(*modify, "user", USER, "set", "MaxWall=11")
        space_is(60.0)
    finally:
        cluster.slurm(*modify, "user", USER, "set", "MaxWall=-1")
        cluster.slurm(*modify, "account", "lab", "set", "MaxWall=-1")
        cluster.slurm(*modify, "qos", "normal", "set", "MaxWall=-1")
