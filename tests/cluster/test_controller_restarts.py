"""slurmctld is started again, and users go on submitting: no job is refused for the shards that we ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.config import NEW_CLUSTER
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.slurm.commands import SlurmCommands
from slurm_plugin.slurm.versions import traits
from tests.cluster.conftest import jobs_on, started

pytestmark = pytest.mark.cluster

SAVED_S = 40.0
"""Slurm writes down its nodes' state seconds after it changed."""


@pytest.fixture(scope="module")
def own(place: Place) -> Iterator[Cluster]:
    root = place.root.with_name(f"{place.root.name}-anew")
    for cluster in started(replace(place, root=root), ClusterSpec(nodes=(NodeSpec(name="n0"),))):
        settings = cluster.place.etc / "rad" / "rad_settings.lua"
        settings.write_text(settings.read_text().replace(NEW_CLUSTER, ""))
        yield cluster


@pytest.fixture
def jobs(own: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(own, request)


def test_who_submits_while_slurmctld_starts_is_not_refused(jobs: Jobs, own: Cluster) -> None:
    """Slurm 22.05 takes `--gpus=1` then and refuses shards; 23.11 and later take both."""
    running = jobs.submit("--gpus=1", "--comment=rad:memory=4G", "--wrap", "sleep 300")
    assert running.job_id is not None
    jobs.wait(running.job_id, "RUNNING")
    own.wait("its state is saved", lambda: saved(own, "node_state") and saved(own, "job_state"), SAVED_S)
    own.daemons.stop("slurmctld")
    own.start_slurmctld()
    said = "--comment=rad:memory=4G"
    asked = (("--gpus=1", said), ("--gres=gpu:1",), ("--gpus=1", "--comment=rad:policy=exclusive"))
    early = [jobs.submit(*words, "--wrap", "true") for words in asked]
    shards = jobs.submit("--gres=shard:4", "--wrap", "true")
    assert [job.messages for job in early if job.job_id is None] == []
    slurm = SlurmCommands(slurm_conf=str(own.place.slurm_conf), timeout_s=10)
    forgets = traits(slurm.version()).forgets_shards
    assert (shards.job_id is None) == forgets, "a request for shards by hand is Slurm's own affair"
    assert ("has no shards yet" in early[0].messages) == forgets

    def shares() -> bool:
        late = jobs.submit("--gpus=1", said, "--wrap", "true")
        assert late.job_id is not None, late.messages
        return "booked 4.0 GiB" in late.messages

    own.wait("jobs share again", shares, 30)
    for job in early:
        assert job.job_id is not None
        jobs.wait(job.job_id, "COMPLETED", timeout_s=60)


def saved(own: Cluster, name: str) -> bool:
    path = Path(own.place.root / "spool" / "slurmctld" / name)
    return path.exists() and b"shard" in path.read_bytes()
