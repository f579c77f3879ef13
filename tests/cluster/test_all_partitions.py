"""JobSubmitPlugins=all_partitions, before lua or after it: a job that names no partition may start in any of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.cluster import Cluster
from lab.files import rewrite
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from tests.cluster.conftest import jobs_on, started

pytestmark = pytest.mark.cluster

ASKS = ("--gpus=1", "--comment=rad:memory=4G")
SHOW = "echo $SLURM_JOB_PARTITION ${RAD_KIND:-unplaced}"


@pytest.fixture(scope="module", params=["lua,all_partitions", "all_partitions,lua"])
def own(place: Place, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster where the partition that RAD does not manage comes first."""
    root = place.root.with_name(f"{place.root.name}-all")
    for cluster in started(replace(place, root=root), ClusterSpec(nodes=(NodeSpec(name="n0"),))):
        conf = cluster.place.slurm_conf
        rewrite(conf, conf.read_text().replace("JobSubmitPlugins=lua", f"JobSubmitPlugins={request.param}"))
        cluster.daemons.stop("slurmctld")
        cluster.start_slurmctld()
        cluster.wait("slurmctld answers", cluster.answers, 30)
        cluster.slurm("scontrol", "update", "PartitionName=plain", "PriorityTier=10")
        cluster.restart_radd()
        yield cluster


@pytest.fixture
def jobs(own: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(own, request)


def ran(jobs: Jobs, *argv: str) -> tuple[list[str], dict[str, str]]:
    """Run a job of one GPU; return where it ran and how it was placed, and what Slurm says of it."""
    job = jobs.submit(*ASKS, *argv, "--wrap", SHOW)
    assert job.job_id is not None, job.messages
    done = jobs.wait(job.job_id)
    assert done["JobState"] == "COMPLETED", jobs.output(job.job_id)
    return jobs.output(job.job_id).split(), done


def test_no_job_has_shards_where_rad_does_not_place_it(jobs: Jobs) -> None:
    where, fields = ran(jobs)
    assert where == ["plain", "unplaced"]
    assert "shard" not in "".join(
        fields.get(name, "") for name in ("TresPerNode", "TresPerJob", "TresPerTask")
    )
    assert "gpu:1" in "".join(fields.get(name, "") for name in ("TresPerNode", "TresPerJob"))
    shell = f"cd '{jobs.folder}' && srun {' '.join(ASKS)} sh -c '{SHOW}; echo ${{SLURM_SHARDS_ON_NODE:-none}}' 2>&1"
    text = jobs.cluster.slurm("runuser", "-u", "nobody", "--", "sh", "-c", shell, timeout_s=40)
    where, *how = text.split()[-3:]  # 22.05 shows a step all partitions of its job
    assert where.startswith("plain") and how == ["unplaced", "none"], text


def test_a_job_that_names_the_shared_partition_shares(jobs: Jobs) -> None:
    where, fields = ran(jobs, "--partition=gpu")
    assert where == ["gpu", "shared"] and "shard" in fields["TresPerNode"]
