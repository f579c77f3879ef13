"""Observe mode and kill switches: what is off does nothing, what is on goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs

pytestmark = pytest.mark.cluster

TRAIN = "python3 fake_train.py --memory 1G --seconds 0.2; env | sort"
GROWS = "python3 fake_train.py --memory 1G,60G --seconds 1"


@pytest.fixture
def settings(cluster: Cluster) -> Iterator[Cluster]:
    with cluster.changed_rad_toml():
        yield cluster


def run(jobs: Jobs, wrap: str) -> tuple[dict[str, str], str]:
    job = jobs.submit("--gpus=1", "--comment=rad:memory=4G", "--wrap", wrap)
    assert job.job_id is not None, job.messages
    return jobs.wait(job.job_id), jobs.output(job.job_id)


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_observing_changes_nothing(jobs: Jobs, settings: Cluster, mode: str) -> None:
    settings.set_rad("mode", f'"{mode}"')
    job = jobs.submit("-H", "--gpus=1", "--comment=rad:memory=4G", "--wrap", "true")
    assert job.job_id is not None
    held = jobs.fields(job.job_id)
    assert "shard" not in held.get("TresPerNode", "") and "rad2:" not in held["Comment"]
    done, output = run(jobs, TRAIN)
    assert done["JobState"] == "COMPLETED"
    assert "RAD_GPUS=" not in output


def test_submit_off_leaves_requests(jobs: Jobs, settings: Cluster) -> None:
    settings.set_rad("submit", "false")
    done, _ = run(jobs, TRAIN)
    assert done["JobState"] == "COMPLETED"
    assert "shard" not in done.get("TresPerNode", "")


def test_placement_off_leaves_slurms_gpu(jobs: Jobs, settings: Cluster) -> None:
    settings.set_rad("placement", "false")
    done, output = run(jobs, TRAIN)
    assert (done["JobState"], done["TresPerNode"].rpartition(":")[2]) == ("COMPLETED", "4")
    assert "RAD_GPUS=" not in output


def test_recovery_off_leaves_failures(jobs: Jobs, settings: Cluster) -> None:
    settings.set_rad("recovery", "false")
    done, output = run(jobs, GROWS)
    assert "torch.OutOfMemoryError" in output
    settings.wait("the epilog is over", lambda: not settings.allocations("n0"), 20)
    assert (done["JobState"], done["Restarts"]) == ("FAILED", "0")


def test_a_broken_rad_toml_hurts_no_job(jobs: Jobs, settings: Cluster) -> None:
    settings.set_rad("mode", "enforce, or so", restart=False)
    settings.daemons.stop("radd")
    done, _ = run(jobs, TRAIN)
    assert done["JobState"] == "COMPLETED"
    assert "drain" not in settings.slurm("sinfo", "-h", "-o", "%T")
