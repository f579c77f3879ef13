"""slurmctld is started again, with its state or without that of its nodes: shards cost no job anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.config import NEW_CLUSTER
from lab.files import rewrite
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.versions import Traits, traits
from tests.cluster.conftest import started

pytestmark = pytest.mark.cluster

SAVED_S = 40.0
"""Slurm writes down its nodes' state seconds after it changed."""


NODE = NodeSpec(name="n0")


@pytest.fixture(scope="module")
def cluster(place: Place) -> Iterator[Cluster]:
    for cluster in started(place, ClusterSpec(nodes=(NODE,)), name="again"):
        settings = cluster.place.etc / "rad" / "rad_settings.lua"
        settings.write_text(settings.read_text().replace(NEW_CLUSTER, ""))
        yield cluster


@contextmanager
def newly_started(cluster: Cluster) -> Iterator[None]:
    """Let the shims take slurmctld for one that has just started (lua/rad_request.lua), however long this takes."""
    proc = cluster.place.etc / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "stat").write_text(f"1 (slurmctld) S {'0 ' * 18}0\n")
    (proc / "uptime").write_text("1.00 1.00\n")
    settings = cluster.place.etc / "rad" / "rad_settings.lua"
    before = settings.read_text()
    settings.write_text(before.replace("\n}", f'\n  proc = "{proc}",\n}}'))
    try:
        yield
    finally:
        (proc / "uptime").write_text("1000.00 1000.00\n")
        settings.write_text(before)


def test_a_job_submitted_while_slurmctld_starts_is_not_refused(jobs: Jobs, cluster: Cluster) -> None:
    """Slurm 22.05 takes `--gpus=1` then and refuses shards until a node has come; 23.11 and later take both."""
    running = jobs.accepted("--gpus=1", "--comment=rad:memory=4G", "--wrap", "sleep 600")
    jobs.wait(running, "RUNNING")
    cluster.wait(
        "its state is saved", lambda: saved(cluster, "node_state") and saved(cluster, "job_state"), SAVED_S
    )
    cluster.daemons.stop("slurmctld")
    cluster.daemons.stop("slurmd-n0")
    said = "--comment=rad:memory=4G"
    requests = (("--gpus=1", said), ("--gres=gpu:1",), ("--gpus=1", "--comment=rad:policy=exclusive"))
    with newly_started(cluster):
        cluster.start_slurmctld()
        shards = jobs.submit("--gres=shard:4", "--wrap", "true")
        early = [jobs.submit(*words, "--wrap", "true") for words in requests]
        cluster.start_node(NODE)
        cluster.wait_for_nodes()
    assert [job.messages for job in early if job.job_id is None] == []
    slurm = SlurmCommands(slurm_conf=str(cluster.place.slurm_conf), timeout_s=10)
    forgets = traits(slurm.version()).forgets_shards
    assert (shards.job_id is None) == forgets, "a request for shards by hand is Slurm's own affair"
    assert ("has no shards yet" in early[0].messages) == forgets

    def shares() -> bool:
        late = jobs.submit("--gpus=1", said, "--wrap", "true")
        assert late.job_id is not None, late.messages
        return "booked 4.0 GiB" in late.messages

    cluster.wait("jobs share again", shares, 30)
    for job in early:
        assert job.job_id is not None
        jobs.wait(job.job_id, "COMPLETED", timeout_s=60)


def test_running_jobs_outlive_the_file_of_the_nodes(jobs: Jobs, cluster: Cluster, here: Traits) -> None:
    """The way back that docs/admin/operation.md gives: without shards in slurm.conf for one start."""
    if here.forgets_shards:
        pytest.skip("22.05.8 starts without the file")
    request = ("--gpus=1", "--comment=rad:memory=4G")
    began_s = cluster.clock.now_s()
    job = jobs.accepted(*request, "--wrap", f"while [ ! -e {jobs.folder}/end ]; do sleep 0.2; done")
    jobs.wait(job, "RUNNING")
    cluster.wait("its state is saved", lambda: cluster.saved_since(began_s), SAVED_S)
    cluster.daemons.kill("slurmctld")
    for path in (cluster.place.root / "spool" / "slurmctld").glob("node_state*"):
        path.unlink()
    cluster.start_slurmctld()
    cluster.wait("slurmctld has died", lambda: cluster.daemons.pid("slurmctld") is None, 30)

    before = cluster.place.slurm_conf.read_text()
    without = re.sub(r",shard:(\w+:)?\d+", "", before).replace("GresTypes=gpu,shard", "GresTypes=gpu")
    for text in (without, before):
        rewrite(cluster.place.slurm_conf, text)
        cluster.restart_slurmctld()
    cluster.daemons.stop("slurmd-n0")
    cluster.start_node(NODE)
    cluster.wait_for_nodes()
    assert jobs.state(job) == "RUNNING"
    (jobs.folder / "end").touch()
    jobs.wait(job, "COMPLETED")

    def shares() -> bool:
        new = jobs.accepted(*request, "--wrap", "echo kind=$RAD_KIND")
        jobs.wait(new, "COMPLETED", timeout_s=60)
        return "kind=shared" in jobs.output(new)

    cluster.wait("jobs share again", shares, 60)


def saved(cluster: Cluster, name: str) -> bool:
    path = Path(cluster.place.root / "spool" / "slurmctld" / name)
    return path.exists() and b"shard" in path.read_bytes()
