"""JobSubmitPlugins=all_partitions, before lua or after it: a job that names no partition may start in any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.files import rewrite
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from tests.cluster.conftest import started

pytestmark = pytest.mark.cluster

REQUEST = ("--gpus=1", "--comment=rad:memory=4G")
SHOW = "echo $SLURM_JOB_PARTITION ${RAD_KIND:-unplaced}"


@pytest.fixture(scope="module", params=["lua,all_partitions", "all_partitions,lua"])
def cluster(place: Place, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster where the partition that RAD does not manage comes first."""
    for cluster in started(place, ClusterSpec(nodes=(NodeSpec(name="n0"),)), name="all"):
        conf = cluster.place.slurm_conf
        rewrite(conf, conf.read_text().replace("JobSubmitPlugins=lua", f"JobSubmitPlugins={request.param}"))
        cluster.restart_slurmctld()
        cluster.slurm("scontrol", "update", "PartitionName=plain", "PriorityTier=10")
        cluster.restart_radd()
        yield cluster


def ran(jobs: Jobs, *argv: str) -> tuple[list[str], dict[str, str]]:
    """Run a job of one GPU; return where it ran and how it was placed, and what Slurm says of it."""
    job = jobs.accepted(*REQUEST, *argv, "--wrap", SHOW)
    done = jobs.wait(job)
    assert done["JobState"] == "COMPLETED", jobs.output(job)
    return jobs.output(job).split(), done


def test_no_job_has_shards_where_rad_does_not_place_it(jobs: Jobs) -> None:
    where, fields = ran(jobs)
    assert where == ["plain", "unplaced"]
    assert "shard" not in "".join(
        fields.get(name, "") for name in ("TresPerNode", "TresPerJob", "TresPerTask")
    )
    assert "gpu:1" in "".join(fields.get(name, "") for name in ("TresPerNode", "TresPerJob"))
    shell = f"cd '{jobs.folder}' && srun {' '.join(REQUEST)} sh -c '{SHOW}; echo ${{SLURM_SHARDS_ON_NODE:-none}}' 2>&1"
    text = jobs.cluster.slurm("runuser", "-u", "nobody", "--", "sh", "-c", shell, timeout_s=40)
    where, *how = text.split()[-3:]  # 22.05 shows a step all partitions of its job
    assert where.startswith("plain") and how == ["unplaced", "none"], text


def test_a_job_that_names_the_shared_partition_shares(jobs: Jobs) -> None:
    where, fields = ran(jobs, "--partition=gpu")
    assert where == ["gpu", "shared"] and "shard" in fields["TresPerNode"]
