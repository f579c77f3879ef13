"""Observe mode and kill switches: what is off does nothing, what is on goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.files import rewrite
from lab.jobs import Jobs

pytestmark = pytest.mark.cluster

TRAIN = "python3 fake_train.py --memory 1G --seconds 0.2; env | sort"
GROWS = "python3 fake_train.py --memory 1G,60G --seconds 1"


@pytest.fixture
def settings(cluster: Cluster) -> Iterator[Cluster]:
    with cluster.changed_rad_toml():
        yield cluster


def run(jobs: Jobs, wrap: str) -> tuple[dict[str, str], str]:
    job = jobs.accepted("--gpus=1", "--comment=rad:memory=4G", "--wrap", wrap)
    return jobs.wait(job), jobs.output(job)


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_observing_changes_nothing(jobs: Jobs, settings: Cluster, mode: str) -> None:
    settings.set_rad("mode", f'"{mode}"')
    job = jobs.accepted("-H", "--gpus=1", "--comment=rad:memory=4G", "--wrap", "true")
    fields = jobs.fields(job)
    assert "shard" not in fields.get("TresPerNode", "") and "rad2:" not in fields["Comment"]
    done, output = run(jobs, TRAIN)
    assert done["JobState"] == "COMPLETED"
    assert "RAD_GPUS=" not in output


def test_booked_jobs_keep_their_limit_until_their_node_is_off_too(jobs: Jobs, settings: Cluster) -> None:
    booked = ("-H", "--gpus=1", "--comment=rad:memory=4G", "--wrap", TRAIN)
    held = [jobs.submit(*booked).job_id for _ in range(2)]
    switch_off(settings, "rad.toml")
    new, _ = run(jobs, TRAIN)
    assert (new["JobState"], "rad2:" in new["Comment"]) == ("COMPLETED", False)
    outputs = []
    for job_id in held:
        assert job_id is not None
        settings.slurm("scontrol", "release", str(job_id))
        assert jobs.wait(job_id)["JobState"] == "COMPLETED"
        outputs.append(jobs.output(job_id))
        switch_off(settings, "rad.n0.toml")
    assert "RAD_KIND=shared" in outputs[0] and "RAD_CAP_MIB=4096" in outputs[0]
    assert "RAD_KIND=" not in outputs[1], "on its shards, without limit"


def switch_off(cluster: Cluster, name: str) -> None:
    """Write `mode = "off"` into the rad.toml of one machine."""
    path = cluster.place.etc / name
    rewrite(path, re.sub(r"(?m)^mode = .*$", 'mode = "off"', path.read_text(encoding="utf-8")))
    cluster.restart_radd()


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
