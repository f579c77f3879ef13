"""A partition that rad.toml does not name, next to one that it does: its jobs run as without RAD, to the variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from lab.cluster import Cluster
from lab.files import rewrite
from lab.jobs import Jobs

pytestmark = pytest.mark.cluster

HOOKS = ("Prolog", "TaskProlog", "Epilog")
CHANGING = (
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_JOB_SLUID",  # 26.05: another number of the job
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME",
    "SLURM_TASK_PID",
    "TMPDIR",
    "RAD_SIMULATED_GPUS",  # of any process that submits on this private cluster
)


@pytest.fixture
def settings(cluster: Cluster) -> Iterator[Cluster]:
    with cluster.changed_rad_toml():
        yield cluster


def environment(jobs: Jobs, *argv: str, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what a job finds in its environment, and in that of a step; what changes with each job left out."""
    job = jobs.accepted(
        *argv,
        "--wrap",
        "env -0 | tr '\\n\\0' ' \\n'; srun -n1 env -0 | tr '\\n\\0' ' \\n' | sed s/^/step:/",
        env=env,
    )
    assert jobs.wait(job)["JobState"] == "COMPLETED"
    lines = (line.partition("=") for line in jobs.output(job).splitlines())
    return {
        name: value
        for name, _, value in lines
        if name.removeprefix("step:") not in CHANGING
        and not name.removeprefix("step:").startswith(
            ("SLURM_LAUNCH_NODE", "SLURM_SRUN_COMM", "SLURM_STEP_LAUNCHER")
        )
    }


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


@contextmanager
def without_hooks(cluster: Cluster, jobs: Jobs) -> Iterator[None]:
    """Take our hooks out of slurm.conf and put them back; each time wait until slurmd has heard of it."""
    path = cluster.place.slurm_conf
    before = path.read_text()
    lines = [line for line in before.splitlines() if not line.startswith(tuple(f"{name}=" for name in HOOKS))]
    assert len(lines) < len(before.splitlines())

    def placed() -> bool:
        return "RAD_KIND" in environment(jobs, "--gpus=1", "--comment=rad:memory=2G")

    try:
        rewrite(path, "\n".join(lines) + "\n")
        cluster.slurm("scontrol", "reconfigure")
        cluster.wait("jobs run without hooks", lambda: not placed(), 30)
        yield
    finally:
        rewrite(path, before)
        cluster.slurm("scontrol", "reconfigure")
        cluster.wait("the hooks are back", placed, 30)


REQUESTS: list[tuple[tuple[str, ...], dict[str, str]]] = [
    (("--gres=shard:3",), {}),
    (("--gres=gpu:1",), {}),
    (("--gpus=2",), {}),
    ((), {}),
    (("--gres=gpu:1",), {"SLURM_GPUS": ""}),
]
"""What is requested, and variables of the submitter. (`--export=ALL,NAME=` would do, but for a user with no login shell
Slurm 26.05 then finds no environment.)"""


def test_an_unnamed_partitions_jobs_have_the_environment_that_they_have_without_us(
    jobs: Jobs, settings: Cluster
) -> None:
    settings.set_rad("pin", '"auto"')
    with_us = [environment(jobs, "-p", "plain", *argv, env=env) for argv, env in REQUESTS]
    with without_hooks(settings, jobs):
        for (argv, env), rads in zip(REQUESTS, with_us, strict=True):
            alone = environment(jobs, "-p", "plain", *argv, env=env)
            assert {name: (rads.get(name), alone.get(name)) for name in differing(rads, alone)} == {}
    assert with_us[0]["CUDA_VISIBLE_DEVICES"].isdigit(), "Slurm's own value: this test compared GPU jobs"


def test_an_unnamed_partitions_job_is_noted_and_jobs_of_rads_keep_clear_of_it(
    jobs: Jobs, settings: Cluster
) -> None:
    settings.set_rad("pin", '"auto"')
    plain = jobs.accepted("-p", "plain", "--gres=gpu:1", "--wrap", "sleep 600")
    jobs.wait(plain, "RUNNING")
    settings.wait(
        "it is noted", lambda: any(row["job_id"] == plain for row in settings.allocations("n0")), 10
    )
    (row,) = [row for row in settings.allocations("n0") if row["job_id"] == plain]
    assert (row["managed"], row["kind"]) == (False, "whole")
    rads = jobs.accepted("--gpus=1", "--comment=rad:memory=4G", "--wrap", "sleep 600")
    settings.wait(
        "RAD's job runs", lambda: any(one["job_id"] == rads for one in settings.allocations("n0")), 60
    )
    (mine,) = [one for one in settings.allocations("n0") if one["job_id"] == rads]
    assert not set(mine["gpus"]) & set(row["gpus"])
    settings.slurm("scancel", str(plain))
    settings.wait(
        "nothing of it stays",
        lambda: all(row["job_id"] != plain for row in settings.allocations("n0")),
        30,
    )


def test_hand_sized_shards_of_an_unnamed_partition_have_no_cap(jobs: Jobs) -> None:
    done = environment(jobs, "-p", "plain", "--gres=shard:8")
    assert not [name for name in done if name.startswith(("CUDA_MPS", "RAD_", "step:CUDA_MPS", "step:RAD_"))]


def test_a_named_partition_that_does_not_collocate_is_left_alone(jobs: Jobs, settings: Cluster) -> None:
    settings.set_rad("collocate", "false")
    done = environment(jobs, "--gres=shard:8")
    assert not [name for name in done if name.startswith(("CUDA_MPS", "RAD_", "step:CUDA_MPS", "step:RAD_"))]
