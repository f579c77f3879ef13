"""A job of one GPU that Slurm alone would give several nodes, or might, is accepted and runs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.errors import CommandError
from tests.cluster.conftest import jobs_on, started

pytestmark = pytest.mark.cluster

REQUESTS = (
    *("--gpus=1 --constraint=[a*1&b*1]", "--gres=gpu:1 --constraint=[a*1&b*1]", "--gpus=1 --constraint=a*1"),
    *("--gpus=1 -n2 --ntasks-per-node=1", "--gpus=1 -n40", "--gres=gpu:1 -n2 --ntasks-per-node=1"),
    *("--gpus-per-node=1 -N1-2", "--gpus=1 -n2", "--gpus=1"),
)
CHANGES = ("NumNodes=2", "Features=[a*1&b*1]", "ReqNodeList=n0,n1", "NumTasks=40")
KINDS = {"shared": "rad:memory=5G", "whole": "my words"}


@pytest.fixture(scope="module")
def three_nodes(place: Place) -> Iterator[Cluster]:
    """Two nodes with GPUs and one without."""
    nodes = (
        NodeSpec(name="n0", line="Feature=a"),
        NodeSpec(name="n1", line="Feature=b"),
        NodeSpec(name="n2", gpu_mib=(), line="Feature=c"),
    )
    own = replace(place, root=place.root.with_name(f"{place.root.name}-three"))
    yield from started(own, ClusterSpec(nodes=nodes))


@pytest.fixture
def jobs(three_nodes: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(three_nodes, request)


def end_of(jobs: Jobs, partition: str, comment: str, request: str, change: str = "") -> tuple[str, ...]:
    """Return the end of a job, and its nodes; or why Slurm refuses it or its change."""
    words = (f"--partition={partition}", f"--comment={comment}", *request.split(), "--hold")
    job = jobs.submit(*words, "--wrap", "echo on $SLURM_JOB_NUM_NODES")
    if job.job_id is None:
        return (job.messages.rpartition("error: ")[2],)
    try:
        if change:
            jobs.cluster.slurm("scontrol", "update", f"JobId={job.job_id}", *change.split(), user="nobody")
    except CommandError as exc:
        return (exc.output,)
    jobs.cluster.slurm("scontrol", "release", str(job.job_id))
    state = jobs.wait(job.job_id)["JobState"]
    return (state, jobs.output(job.job_id).splitlines()[-1])


def ends(jobs: Jobs, request: str, change: str = "") -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Return the end of a job without RAD, and that of each kind of job with RAD."""
    kinds = (("plain", "my words"), *(("gpu", comment) for comment in KINDS.values()))
    with ThreadPoolExecutor(len(kinds)) as pool:
        alone, *found = pool.map(lambda kind: end_of(jobs, *kind, request, change), kinds)
    return alone, dict(zip(KINDS, found, strict=True))


@pytest.mark.parametrize("request_", REQUESTS)
def test_it_gets_the_nodes_that_it_gets_without_rad(jobs: Jobs, request_: str) -> None:
    alone, found = ends(jobs, request_)
    assert found == dict.fromkeys(KINDS, alone)


@pytest.mark.parametrize("change", CHANGES)
def test_a_waiting_job_takes_a_change_to_several_nodes(jobs: Jobs, change: str) -> None:
    """Where it runs on two nodes, it has shards of both: Slurm counts shards by node."""
    alone, found = ends(jobs, "--gpus=1", change)
    assert found == dict.fromkeys(KINDS, alone)


@pytest.mark.parametrize("request_", ["--gpus=1 -n40", "--gpus=1 --constraint=[a*1&b*1]"])
def test_it_gets_them_while_radd_is_away(jobs: Jobs, request_: str) -> None:
    alone = end_of(jobs, "plain", "my words", request_)
    jobs.cluster.daemons.stop("radd")
    try:
        assert end_of(jobs, "gpu", "my words", request_) == alone
    finally:
        jobs.cluster.restart_radd()
