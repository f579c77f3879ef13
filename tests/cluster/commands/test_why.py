"""`rad why JOB` on jobs that really wait: it names Slurm's or RAD's reason, and what its user can do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lab.cluster import Cluster
from lab.config import make_gpus
from lab.files import rewrite
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.units import GIB
from tests.cluster.conftest import jobs_on, started
from tests.cluster.trainings import unmanaged

pytestmark = pytest.mark.cluster

NODE = NodeSpec(name="n0", gpu_mib=(40960, 40960))
USER = "games"
SITE = (
    "AccountingStorageTRES=gres/gpu",
    "AccountingStorageEnforce=associations,limits,qos",
    "Licenses=solver:1",
    "PartitionName=short Nodes=ALL MaxTime=1 State=UP",
)
SLEEP = ("--wrap", "sleep 600")
PLAIN = ("-p", "plain", *SLEEP)
GPU = "--gpus=1"
Prepare = Callable[[Jobs], int]


@pytest.fixture(scope="module")
def own(place: Place) -> Iterator[Cluster]:
    spec = ClusterSpec(
        nodes=(NODE,),
        accounts=True,
        slurm_conf=SITE,
        by_memory=False,
        rad_toml=("compute_overcommit = 1.0",),
    )
    yield from started(place, spec, name="why")


@pytest.fixture
def jobs(own: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(own, request)
    own.wait("the GPUs are free", lambda: not own.allocations("n0"), 30)


def send(jobs: Jobs, *argv: str) -> int:
    return jobs.accepted(*argv, user=USER)


def runs(jobs: Jobs, *argv: str) -> int:
    job = send(jobs, *argv)
    jobs.wait(job, "RUNNING")
    return job


def fills(jobs: Jobs, gib: int = 30) -> None:
    """Let a job book most of each GPU."""
    for _ in NODE.gpu_mib:
        runs(jobs, GPU, f"--comment=rad:memory={gib}G", *SLEEP)


def why(jobs: Jobs, job: int, user: str = USER) -> dict[str, Any]:
    """Return the answer that a user gets."""
    words = ("why", str(job), "--json", "--config", str(jobs.cluster.place.etc / "rad.n0.toml"))
    tree: dict[str, Any] = json.loads(
        jobs.cluster.slurm(f"{jobs.cluster.place.venv}/bin/rad", *words, user=user)
    )
    return tree


def answered(jobs: Jobs, job: int, kind: str, text: str = "") -> dict[str, str]:
    """Return the first cause as soon as it is of a kind, and says what is expected."""
    seen: list[dict[str, Any]] = []

    def there() -> bool:
        seen.append(why(jobs, job))
        cause = seen[-1]["causes"][0]
        return bool(cause["kind"] == kind and text in cause["text"])

    try:
        jobs.cluster.wait(f"rad why says {kind}", there, 40)
    except Exception as exc:
        raise AssertionError(f"{exc}; it said {seen[-1]}") from exc
    assert seen[-1]["missing"] == []
    cause: dict[str, str] = seen[-1]["causes"][0]
    return cause


@contextmanager
def slurm_has(jobs: Jobs, made: tuple[str, ...], unmade: tuple[str, ...]) -> Iterator[None]:
    jobs.cluster.slurm(*made)
    try:
        yield
    finally:
        jobs.cluster.slurm(*unmade)


def dependency(jobs: Jobs) -> int:
    return send(jobs, f"--dependency=afterok:{runs(jobs, *PLAIN)}", *PLAIN)


def never(jobs: Jobs) -> int:
    failed = send(jobs, "-p", "plain", "--wrap", "false")
    child = send(jobs, f"--dependency=afterok:{failed}", *PLAIN)
    jobs.wait(failed, "FAILED")
    return child


def held_by_user(jobs: Jobs) -> int:
    return send(jobs, "--hold", *PLAIN)


def held_by_admin(jobs: Jobs) -> int:
    job = send(jobs, "--begin=now+1hour", *PLAIN)
    jobs.cluster.slurm("scontrol", "hold", str(job))
    return job


def requeued_and_held(jobs: Jobs) -> int:
    job = runs(jobs, *PLAIN)
    jobs.cluster.slurm("scontrol", "requeuehold", str(job))
    return job


def begin(jobs: Jobs) -> int:
    return send(jobs, "--begin=now+1hour", *PLAIN)


def array_limit(jobs: Jobs) -> int:
    return send(jobs, "--array=1-3%1", *PLAIN)


def licences(jobs: Jobs) -> int:
    runs(jobs, "--licenses=solver:1", *PLAIN)
    return send(jobs, "--licenses=solver:1", *PLAIN)


def time_limit(jobs: Jobs) -> int:
    return send(jobs, "-p", "short", "--time=60", *SLEEP)


def memory(jobs: Jobs) -> int:
    fills(jobs)
    return send(jobs, GPU, "--comment=rad:memory=12G", *SLEEP)


def priority(jobs: Jobs) -> int:
    first = memory(jobs)
    answered(jobs, first, "memory")
    return send(jobs, GPU, "--comment=rad:memory=12G", *SLEEP)


def whole_gpu(jobs: Jobs) -> int:
    fills(jobs, gib=4)
    runs(jobs, GPU, "--comment=rad:memory=20G", *SLEEP)
    job = send(jobs, GPU, "--comment=rad:policy=exclusive", *SLEEP)
    return job if jobs.fields(job)["JobState"] == "PENDING" else send(jobs, GPU, *SLEEP)


def cpus(jobs: Jobs) -> int:
    runs(jobs, "-p", "plain", "-c", "8", *SLEEP)
    return send(jobs, GPU, "--comment=rad:memory=4G", "-c", str(NODE.cpus), *SLEEP)


def rerun(jobs: Jobs) -> int:
    fills(jobs, gib=20)  # so that the rerun waits
    wrap = "python3 fake_train.py --memory 3G,20G --seconds 1"
    job = send(jobs, GPU, "--comment=rad:memory=4G", "--wrap", wrap)
    jobs.cluster.wait("it is requeued", lambda: jobs.restarts(job) == 1, 40)
    return job


MADE: dict[str, tuple[Prepare, str, str, str]] = {
    "dependency": (dependency, "dependency", "has not ended", "Dependency="),
    "a dependency that is never met": (never, "never", "never starts", "scancel"),
    "held by its user": (held_by_user, "held by user", "its user holds it", "scontrol release {}"),
    "held by an admin": (held_by_admin, "held by admin", "an admin holds it", "your admin"),
    "requeued and held": (requeued_and_held, "held by user", "requeuehold", "scontrol release {}"),
    "--begin": (begin, "begin", "--begin", ""),
    "tasks of an array": (array_limit, "array limit", "its array", "ArrayTaskThrottle="),
    "licences": (licences, "licences", "licences that others use", "scontrol show licenses"),
    "time limit": (time_limit, "never", "above its partition's limit", "TimeLimit="),
    "memory": (memory, "memory", "has 12.0 GiB left to book: the most is 9.4 GiB", "rad-estimate"),
    "priority": (priority, "priority", "higher priority", "sprio -j {}"),
    "a whole GPU": (whole_gpu, "whole GPU", "of 2 GPUs are idle", "#RAD model="),
    "CPUs": (cpus, "resources", "what it lacks there is CPUs", "fewer CPUs"),
    "a rerun": (rerun, "rerun", "it runs again", "starts by itself"),
}


@pytest.mark.parametrize("name", MADE)
def test_a_waiting_job_has_its_reason_and_the_way_out(jobs: Jobs, name: str) -> None:
    prepare, kind, text, fix = MADE[name]
    job = prepare(jobs)
    cause = answered(jobs, job, kind, text)
    assert fix.format(job) in cause["fix"], cause


def test_a_task_of_an_array_is_named_as_squeue_shows_it(jobs: Jobs, own: Cluster) -> None:
    job = send(jobs, "--array=1-2%1", *PLAIN)
    own.wait("the first runs", lambda: jobs.state(f"{job}_1") == "RUNNING", 30)
    rad = f"{own.place.venv}/bin/rad"
    config = ("--config", str(own.place.etc / "rad.toml"))
    assert "RUNNING" in own.slurm(rad, "why", f"{job}_1", *config)
    with pytest.raises(CommandError, match=f"the array's id, {job}"):
        own.slurm(rad, "why", f"{job}_9", *config)
    with pytest.raises(CommandError) as reported:
        own.slurm(rad, "report", "999999", *config)
    assert reported.value.returncode == 1


def test_a_limit_of_an_account(jobs: Jobs) -> None:
    modify = ("sacctmgr", "-i", "modify", "user", USER, "set")
    with slurm_has(jobs, (*modify, "MaxJobs=1"), (*modify, "MaxJobs=-1")):
        runs(jobs, *PLAIN)
        cause = answered(jobs, send(jobs, *PLAIN), "limit")
    assert "AssocMaxJobsLimit" in cause["text"] and "ask your admin" in cause["fix"]


def test_a_partition_that_is_down(jobs: Jobs) -> None:
    update = ("scontrol", "update", "PartitionName=plain")
    with slurm_has(jobs, (*update, "State=DOWN"), (*update, "State=UP")):
        cause = answered(jobs, send(jobs, *PLAIN), "partition down")
    assert "starts no jobs" in cause["text"] and "admin" in cause["fix"]


def test_a_reservation_of_later(jobs: Jobs) -> None:
    later = (f"Users={USER}", "Nodes=n0", "StartTime=now+60minutes", "Duration=5")
    made = ("scontrol", "create", "reservation", "ReservationName=later", *later)
    with slurm_has(jobs, made, ("scontrol", "delete", "ReservationName=later")):
        job = send(jobs, "--reservation=later", "--time=1", *PLAIN)
        cause = answered(jobs, job, "reservation")
        jobs.cluster.slurm("scancel", str(job))
    assert "has not begun" in cause["text"] and "scontrol show reservation" in cause["fix"]


def test_a_drained_node(jobs: Jobs) -> None:
    update = ("scontrol", "update", "NodeName=n0")
    with slurm_has(jobs, (*update, "State=DRAIN", "Reason=memory errors"), (*update, "State=RESUME")):
        cause = answered(jobs, send(jobs, GPU, "--comment=rad:memory=4G", *SLEEP), "no node")
    assert "n0 drained (memory errors)" in cause["text"] and "sinfo -R" in cause["fix"], cause


def test_a_job_that_its_prolog_requeued(jobs: Jobs, own: Cluster) -> None:
    """A program that Slurm does not know holds the memory of the GPU that it gives the job."""
    runs(jobs, GPU, "--comment=rad:memory=30G", *SLEEP)
    own.wait("it is placed", lambda: len(own.allocations("n0")) == 1, 20)
    (taken,) = own.allocations("n0")[0]["gpus"]
    uuid = next(gpu.uuid for gpu in make_gpus(NODE) if gpu.uuid != taken)
    with unmanaged(own, "n0", uuid, 30 * GIB):
        job = send(jobs, GPU, "--comment=rad:memory=12G", *SLEEP)
        cause = answered(jobs, job, "memory", "its node had nothing for it")
    assert "starts by itself" in cause["fix"], cause


def test_a_job_whose_prolog_failed(jobs: Jobs, own: Cluster) -> None:
    """Slurm holds it, and drains the node."""
    prolog = own.place.etc / "prolog.sh"
    before = prolog.read_text()
    rewrite(prolog, "#!/bin/sh\nexit 1\n")
    try:
        job = send(jobs, GPU, *SLEEP)
        cause = answered(jobs, job, "held after failure")
    finally:
        rewrite(prolog, before)
        own.slurm("scontrol", "update", "NodeName=n0", "State=RESUME")
    assert "a Prolog failed" in cause["text"] and "slurmd.log" in cause["fix"], cause


def test_compute(jobs: Jobs) -> None:
    """Both GPUs have the memory for one more, but not the shards that it requests for its compute."""
    script = jobs.folder / "share_resnet18.sh"
    script.write_text(script.read_text().replace("--seconds 8", "--seconds 600"))
    for _ in range(12):
        job = send(jobs, script.name)
        seen: list[str] = []

        def decided(job: int = job, seen: list[str] = seen) -> bool:
            row = jobs.fields(job)
            seen.append(row["JobState"])
            return row["JobState"] == "RUNNING" or row["Reason"] == "Resources"

        jobs.cluster.wait("Slurm has looked at it", decided, 20)
        if seen[-1] == "PENDING":
            break
    cause = answered(jobs, job, "compute")
    assert "for its compute" in cause["text"] and "compute_overcommit" in cause["fix"], cause
