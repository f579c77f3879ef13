"""The contract of SlurmControl, kept by every back end against a running Slurm."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.control import JobChange, SlurmControl
from slurm_plugin.slurm.pyslurm import PyslurmControl
from slurm_plugin.slurm.versions import parse_version

pytestmark = pytest.mark.cluster
NEVER = 10**9


@pytest.fixture(params=["commands", "pyslurm"])
def control(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[SlurmControl]:
    conf = cluster.place.slurm_conf
    if request.param == "commands":
        yield SlurmCommands(slurm_conf=str(conf), timeout_s=10)
    elif importlib.util.find_spec("pyslurm") is None:
        pytest.skip("no pyslurm made for this Slurm is installed")
    else:
        yield PyslurmControl(slurm_conf=conf, clock=SystemClock())


def held_job(jobs: Jobs, *argv: str) -> int:
    """Submit a job that stays in the queue, in a partition that we leave alone."""
    return jobs.accepted("-p", "plain", "--hold", "--gres=shard:2", *argv, "--wrap", "true")


def running(jobs: Jobs, *argv: str) -> int:
    """Submit a job and wait until it runs."""
    job = jobs.accepted(
        "-p", "plain", "--gres=shard:2", *argv, "--wrap", "while [ ! -e go ]; do sleep 0.1; done"
    )
    jobs.wait(job, "RUNNING")
    return job


def test_version_and_config(control: SlurmControl) -> None:
    major, minor, _ = control.version()
    assert (22, 5) <= (major, minor) < (40, 0)
    config = control.config()
    assert parse_version(config["SLURM_VERSION"]) == control.version(), (
        "as radd compares them after an upgrade"
    )
    assert (config["SelectType"], config["ClusterName"][:4]) == ("select/cons_tres", "rad_")
    assert "bf_interval=2" in config["SchedulerParameters"].split(","), "as one text, as boosting reads it"


def test_nodes(control: SlurmControl) -> None:
    (node,) = control.nodes()
    assert node.name == "n0"
    assert count_of(parse_gres(node.gres), "gpu") == 4
    assert count_of(parse_gres(node.gres), "shard") > 4
    assert "plain" in node.partitions
    assert "DRAIN" not in node.state


def test_a_pending_job(control: SlurmControl, jobs: Jobs) -> None:
    job_id = held_job(jobs, "--comment", "two words, 100%")
    job = control.job(job_id)
    assert job is not None
    assert (job.job_id, job.state, job.partition, job.comment) == (
        job_id,
        "PENDING",
        "plain",
        "two words, 100%",
    )
    assert job.batch and job.restarts == 0 and job.priority == 0
    assert count_of(parse_gres(job.gres), "shard") == 2
    commands = SlurmCommands(slurm_conf=str(jobs.cluster.place.slurm_conf))
    assert job_id in {one.job_id for one in commands.jobs(states=("PENDING",))}
    assert job_id not in {one.job_id for one in commands.jobs(states=("RUNNING",))}


def test_an_unknown_job_is_none(control: SlurmControl) -> None:
    assert control.job(NEVER) is None


def test_a_change_of_an_unknown_job_is_an_error(control: SlurmControl) -> None:
    with pytest.raises(SlurmError):
        control.update(NEVER, JobChange(comment="x"))


def test_update(control: SlurmControl, jobs: Jobs) -> None:
    job_id = held_job(jobs)
    control.update(
        job_id,
        JobChange(comment="new words", admin_comment="rad: oom try=1", gres="shard:3", start_in_s=3600),
    )
    job = control.job(job_id)
    assert job is not None
    assert (job.comment, job.admin_comment) == ("new words", "rad: oom try=1")
    assert count_of(parse_gres(job.gres), "shard") == 3
    assert job.start_time_s is not None and job.start_time_s > SystemClock().now_s() + 3000
    control.update(job_id, JobChange(start_now=True))
    job = control.job(job_id)
    assert job is not None
    assert job.start_time_s is None or job.start_time_s < SystemClock().now_s() + 60


def test_jobs_of_a_node(jobs: Jobs) -> None:
    job_id, commands = running(jobs), SlurmCommands(slurm_conf=str(jobs.cluster.place.slurm_conf))
    assert job_id in {job.job_id for job in commands.jobs(node="n0", states=("RUNNING",))}


def test_requeue(control: SlurmControl, jobs: Jobs) -> None:
    job_id = running(jobs)
    control.requeue(job_id)
    jobs.wait(job_id, "PENDING")
    control.requeue(job_id)  # already pending is success
    job = control.job(job_id)
    assert job is not None and job.restarts == 1 and job.requeue


def test_requeue_is_refused_where_the_user_said_so(control: SlurmControl, jobs: Jobs) -> None:
    job_id = running(jobs, "--no-requeue")
    job = control.job(job_id)
    assert job is not None and not job.requeue
    with pytest.raises(SlurmError):
        control.requeue(job_id)


def test_a_missing_slurm_conf_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)  # pyslurm sets it
    missing = tmp_path / "slurm.conf"
    with pytest.raises(SlurmError):
        SlurmCommands(slurm_conf=str(missing)).config()
    # In a process of its own: pyslurm could end it.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert "slurm.conf" in pool.submit(_open_pyslurm, str(missing)).result(timeout=60)


def _open_pyslurm(conf: str) -> str:
    try:
        PyslurmControl(slurm_conf=Path(conf), clock=SystemClock())
    except SlurmError as exc:
        return str(exc)
    return "no error"
