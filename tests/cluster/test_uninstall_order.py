"""After `rad uninstall`, with any daemon not restarted yet, jobs start and no node drains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_jobs import submit

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import NodeSpec
from tests.cluster.conftest import jobs_on
from tests.cluster.test_edit_slurm import INSTALL, again, bare, node_state, rad

__all__ = ["bare"]
pytestmark = pytest.mark.cluster


@pytest.fixture
def jobs(bare: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(bare, request)


def restart(cluster: Cluster, name: str) -> None:
    cluster.daemons.stop("slurmctld" if name == "slurmctld" else "slurmd-n0")
    if name == "slurmctld":
        cluster.start_slurmctld()
        cluster.wait("slurmctld answers", cluster.answers, 20)
    else:
        cluster.start_node(NodeSpec(name="n0"))


def a_job_runs(cluster: Cluster, jobs: Jobs) -> None:
    for asks in ("--gres=gpu:1", "--ntasks=1"):
        jobs.wait(submit(jobs, asks, "--wrap", "srun true"), "COMPLETED")
    assert not {"drain", "down", "inval"} & set(node_state(cluster).replace("*", "").split())


def test_jobs_run_with_any_daemon_not_restarted_yet(bare: Cluster, jobs: Jobs) -> None:
    for hook in ("prolog.sh", "task_prolog.sh", "epilog.sh"):
        (bare.place.etc / hook).unlink()  # so that `rad install` writes them, and may take them back
    assert rad(bare, "install", *INSTALL).rstrip().endswith("status 0")
    again(bare)
    a_job_runs(bare, jobs)
    rad(bare, "uninstall", "--edit-slurm")
    a_job_runs(bare, jobs)  # nothing was restarted
    restart(bare, "slurmctld")
    a_job_runs(bare, jobs)
    said = rad(bare, "uninstall", "--edit-slurm")
    assert "does nothing now" in said, said
    assert "python" not in (bare.place.etc / "epilog.sh").read_text()
    a_job_runs(bare, jobs)  # slurmd still names the hooks
    restart(bare, "slurmd")
    a_job_runs(bare, jobs)
    restart(bare, "slurmctld")
    a_job_runs(bare, jobs)
