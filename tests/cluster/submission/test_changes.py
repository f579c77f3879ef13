"""A job can be changed with RAD as without, by its user and by an admin."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from slurm_plugin.core.errors import CommandError
from slurm_plugin.slurm.versions import Traits

pytestmark = pytest.mark.cluster

REQUESTS = {
    "shared": ("--comment=rad:memory=5G",),
    "whole": ("--comment=my words",),
    "unmanaged": ("--partition=plain", "--comment=my words"),
}
NEW = [
    *(
        "JobName=x",
        "TimeLimit=10",
        "TimeLimit+=5",
        "Nice=5",
        "Comment=hello",
        "Comment=",
        "AdminComment=x",
        "WCKey=x",
    ),
    *("Account=physics", "QOS=normal", "Partition=gpu,plain", "Partition=plain", "Partition=gpu", "UserID=0"),
    *(
        "MinCPUsNode=2",
        "NumCPUs=2",
        "NumTasks=2",
        "NumNodes=1",
        "NumNodes=1-1",
        "CPUsPerTask=2",
        "ThreadSpec=0",
    ),
    *(
        "MinMemoryNode=10",
        "MinMemoryCPU=10",
        "MinTmpDiskNode=1",
        "Features=",
        "Prefer=",
        "Licenses=",
        "Switches=1",
    ),
    *(
        "ReqNodeList=n0",
        "NodeList=n0",
        "ExcNodeList=",
        "Contiguous=1",
        "OverSubscribe=yes",
        "Requeue=0",
        "Requeue=1",
    ),
    *("WorkDir=/tmp", "StdOut=/tmp/x", "MailUser=x", "MailType=END", "Dependency=", "Deadline=now+1hour"),
    *(
        "EndTime=now+1hour",
        "BurstBuffer=",
        "Reservation=none",
        "ReservationName=",
        "SiteFactor=5",
        "Priority=5",
    ),
    *(
        "ResetAccrueTime",
        "Gres=none",
        "Gres=bogus:1",
        "TresPerNode=gres:bogus:1",
        "GresBogus=1",
        "Name=",
        "KillOnInvDep=yes",
    ),
]
RUNNING = [
    "JobName=x",
    "TimeLimit=10",
    "Comment=hello",
    "Account=physics",
    "Requeue=0",
    "Gres=bogus:1",
]
"""Fewer, as scontrol repeats for seconds what slurmctld refuses for a running job."""


def change(cluster: Cluster, job_id: int, what: str, user: str) -> str:
    """Return what a change prints; "" where it succeeds."""
    try:
        cluster.slurm("scontrol", "update", f"JobId={job_id}", what, user=user)
    except CommandError as exc:
        return exc.output.strip().replace(f"job {job_id}", "job ID")
    return ""


@pytest.mark.parametrize("user", ["nobody", "root"])
@pytest.mark.parametrize(
    ("state", "changes"), [("PENDING", NEW), ("RUNNING", RUNNING)], ids=["pending", "running"]
)
def test_every_change_has_the_answer_that_it_has_without_rad(
    cluster: Cluster, jobs: Jobs, state: str, changes: list[str], user: str
) -> None:
    """Slurm takes what errno holds after job_submit.lua for the result of a change, where it finds no association."""
    answers = {}
    for kind, request in REQUESTS.items():
        begin = "--begin=now+2days" if state == "PENDING" else "--begin=now"
        job = jobs.accepted(begin, "--gpus=1", *request, "--wrap", "sleep 600")
        jobs.wait(job, state)
        answers[kind] = {what: change(cluster, job, what, user) for what in changes}
        cluster.slurm("scancel", str(job))
    assert list(answers["unmanaged"].values()).count("") > len(changes) // 3, "most are tried in vain"
    assert answers["shared"] == answers["unmanaged"]
    assert answers["whole"] == answers["unmanaged"]


@pytest.fixture(params=["lua-posix", "LuaSocket alone"])
def lua(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[None]:
    """Let slurmctld, just started, find both of Lua's libraries or one."""
    settings = cluster.place.etc / "rad/rad_settings.lua"
    before = settings.read_text()
    if request.param == "LuaSocket alone":
        settings.write_text('package.preload["posix.errno"] = function() error("hidden") end\n' + before)
    cluster.restart_slurmctld()
    yield
    settings.write_text(before)
    cluster.restart_slurmctld()


@pytest.mark.parametrize(
    ("gpu", "what"),
    [
        ("--gres=gpu:1", "Gres=gpu:1"),
        ("--gpus=1", "TresPerJob=gres:gpu:1"),
        ("-n1 --gpus-per-task=1", "TresPerTask=gres:gpu:1"),
    ],
)
def test_a_waiting_job_that_shares_a_gpu_may_name_a_whole_one(
    cluster: Cluster, jobs: Jobs, gpu: str, what: str
) -> None:
    request = ("--hold", *gpu.split())
    job = jobs.submit(*request, *REQUESTS["shared"], "--wrap", "srun echo has $SLURM_GPUS_ON_NODE")
    alone = jobs.submit(*request, *REQUESTS["unmanaged"], "--wrap", "true")
    assert job.job_id is not None and alone.job_id is not None
    assert change(cluster, alone.job_id, what, "nobody") == ""
    assert change(cluster, job.job_id, what, "nobody") == ""
    cluster.slurm("scontrol", "release", str(job.job_id))
    ended = jobs.wait(job.job_id)
    assert (ended["JobState"], jobs.output(job.job_id)) == ("COMPLETED", "has 1\n")
    assert re.search(r"shard:39\b|gpu:1\b|gpu:simulated:1\b", ended["TresPerNode"])


@pytest.mark.parametrize("what", ["TresPerJob=gres/gpu:2", "Partition=plain TresPerJob=gres/gpu:1"])
def test_a_waiting_job_that_shares_a_gpu_may_name_other_gpus(
    cluster: Cluster, jobs: Jobs, here: Traits, what: str
) -> None:
    """Slurm 22.05 refuses gres/gpu of a job that holds shards, and 24.11 and 26.05 other than by node."""
    if not here.gpu_after_requeue:
        pytest.skip("this Slurm takes no gres/gpu of a job that holds shards")
    job = jobs.accepted("--hold", "--gpus=1", *REQUESTS["shared"], "--wrap", "echo has $SLURM_GPUS_ON_NODE")
    cluster.slurm("scontrol", "update", f"JobId={job}", *what.split(), user="nobody")
    cluster.slurm("scontrol", "release", str(job))
    assert jobs.wait(job)["JobState"] == "COMPLETED"
    assert jobs.output(job) == f"has {what[-1]}\n"


@pytest.mark.parametrize("user", ["nobody", "root"])
@pytest.mark.parametrize("what", ["Gres=gpu:1", "Gres=gpu"])
def test_a_job_may_name_its_one_gpu_again(cluster: Cluster, jobs: Jobs, what: str, user: str) -> None:
    """Slurm 22.05 refuses a request for gres/gpu of a job that holds shards, as its one GPU was made."""
    script = "srun -n1 --gres=gpu:1 sh -c 'echo has $SLURM_GPUS_ON_NODE'"
    for kind in ("whole", "unmanaged"):
        job = jobs.accepted("--hold", "--gres=gpu:1", *REQUESTS[kind], "--wrap", script)
        assert change(cluster, job, what, user) == ""
        cluster.slurm("scontrol", "release", str(job))
        assert jobs.wait(job)["JobState"] == "COMPLETED"
        assert "has 1" in jobs.output(job)


@pytest.mark.parametrize("kind", ["whole", "shared"])
@pytest.mark.parametrize("gpu", ["--gpus=1", "-n1 --gpus-per-task=1", "--gres=gpu:1", "--gpus-per-node=1"])
def test_what_is_requested_by_node_is_cleared_and_nothing_else(
    cluster: Cluster, jobs: Jobs, kind: str, gpu: str
) -> None:
    ended = []
    for request in (REQUESTS[kind], REQUESTS["unmanaged"]):
        job = jobs.accepted("--hold", *gpu.split(), *request, "--wrap", "echo has $SLURM_GPUS_ON_NODE")
        assert change(cluster, job, "TresPerNode=", "nobody") == ""
        cluster.slurm("scontrol", "release", str(job))
        assert jobs.wait(job)["JobState"] == "COMPLETED"
        ended.append(jobs.output(job).strip())
    assert ended[0] == ended[1]


@pytest.mark.usefixtures("lua")
@pytest.mark.parametrize("kind", ["shared", "whole"])
def test_a_pending_job_can_be_changed_while_radd_is_stopped(cluster: Cluster, jobs: Jobs, kind: str) -> None:
    job = jobs.accepted("--hold", "--gpus=1", *REQUESTS[kind], "--wrap", "true")
    cluster.daemons.stop("radd")
    try:
        said = [change(cluster, job, what, "nobody") for what in ("partition=plain", "account=physics")]
    finally:
        cluster.restart_radd()
    assert said == ["", ""]
    assert jobs.fields(job)["Partition"] == "plain"
