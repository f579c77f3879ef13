"""An srun that requests GPUs inside a job whose GPU became shards: it runs with the job's GPU, on every Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, NodeSpec, Place
from slurm_plugin.core.errors import CommandError
from tests.cluster.conftest import jobs_on, started

pytestmark = pytest.mark.cluster

REQUESTS = (
    "--gres=gpu:1 --overlap",  # first: with --overlap srun does not wait for the memory of the step before it
    "",
    "--gres=gpu:1",
    "--gres=gpu:simulated:1",
    "--gres=gpu",
    "--gpus=1",
    "-G1",
    "--gpus-per-node=1",
    "--gpus-per-task=1",
    "--ntasks-per-gpu=1",
    "--cpus-per-gpu=1",
    "--cpus-per-gpu 1 --gpus 1",
    "--mem-per-gpu=20",
    "-G 1 --exact",
    "--gpus-per-task=1 --exclusive",
    "--gpu-bind=closest --gpus=1",
)
SAID = {"silent": (), "shared": ("--comment=rad:memory=6G",)}


@pytest.fixture
def alone(place: Place) -> Iterator[Cluster]:
    """Slurm without RAD; its GPUs have shards."""
    yield from started(place, ClusterSpec(nodes=(NodeSpec(name="n0"),), with_rad=False), name="alone")


@pytest.fixture
def jobs_alone(alone: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    yield from jobs_on(alone, request)


def test_slurm_alone_refuses_such_a_step_before_a_task_prolog_could_change_it(jobs_alone: Jobs) -> None:
    job_id = jobs_alone.accepted("--gres=shard:4", "--wrap", "srun true && srun --gres=gpu:1 echo ran")
    assert jobs_alone.wait(job_id, timeout_s=40)["JobState"] == "FAILED"
    assert "Invalid generic resource (gres) specification" in jobs_alone.output(job_id)
    assert "ran" not in jobs_alone.output(job_id).split()


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_a_step_may_ask_for_its_jobs_gpu_in_any_spelling(jobs: Jobs, said: tuple[str, ...]) -> None:
    lines = [
        f"srun {ask} sh -c 'echo step on $CUDA_VISIBLE_DEVICES' || echo failed {ask}" for ask in REQUESTS
    ]
    (jobs.folder / "steps.sh").write_text("\n".join(["#!/bin/sh", *lines, ""]))
    job_id = jobs.accepted("--gres=gpu:1", *said, "steps.sh")
    assert jobs.wait(job_id, timeout_s=90)["JobState"] == "COMPLETED"
    text = jobs.output(job_id)
    assert "failed" not in text and "error" not in text, text
    assert len(re.findall(r"(?m)^step on \d$", text)) == len(REQUESTS), text


def test_a_step_that_requests_more_than_its_job_has_is_refused(jobs: Jobs) -> None:
    for ask in ("--gres=gpu:2", "--gpus=3", "--gpus-per-task=1 -n2"):
        job_id = jobs.accepted("--gres=gpu:1", "-n2", "--wrap", f"timeout 20 srun {ask} true")
        assert jobs.wait(job_id, timeout_s=40)["JobState"] == "FAILED", ask


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_steps_of_salloc_and_from_another_shell_find_the_gpu(jobs: Jobs, said: tuple[str, ...]) -> None:
    def shell(text: str) -> str:
        return jobs.cluster.slurm(
            "runuser", "-u", "nobody", "--", "sh", "-c", f'cd "$0" && {text}', str(jobs.folder)
        )

    show = "sh -c 'echo step on $CUDA_VISIBLE_DEVICES'"
    requests = ("", "--gres=gpu:1", "-G1")
    (jobs.folder / "steps.sh").write_text("\n".join(f"srun {ask} {show} 2>&1" for ask in requests))
    text = shell(f"salloc --gres=gpu:1 {' '.join(said)} sh steps.sh 2>&1")
    assert text.count("step on 0") == len(requests), text
    job_id = jobs.accepted("--gres=gpu:1", *said, "--wrap", "sleep 600")
    jobs.wait(job_id, "RUNNING")
    text = shell(f"srun --jobid={job_id} --overlap --gres=gpu:1 {show} 2>&1")
    assert "step on 0" in text, text


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_several_tasks_of_a_step_use_the_one_gpu_of_their_job(jobs: Jobs, said: tuple[str, ...]) -> None:
    """They do without RAD; on 22.05 slurmstepd crashes where such tasks have shards and are bound to no GPU."""
    requests = (
        *("--gres=gpu:1", "--gpus-per-node=1", "--gpu-bind=none --gres=gpu:1"),
        *("--gpu-bind=closest --gres=gpu:1", "--gpu-bind=single:1 --gres=gpu:1"),
    )
    show = "sh -c 'echo step on $CUDA_VISIBLE_DEVICES of $SLURM_GPUS_ON_NODE, $SLURM_STEP_GPUS'"
    lines = [f"srun -n2 --overcommit {ask} {show} 2>&1" for ask in requests]
    seen = "step on 0 of 1, 0"
    (jobs.folder / "steps.sh").write_text("\n".join(["#!/bin/sh -e", *lines, ""]))
    for head in ("--gres=gpu:1", "-n1 --gpus-per-task=1"):
        argv = (*head.split(), *said)
        job_id = jobs.accepted(*argv, "steps.sh")
        state = jobs.wait(job_id, timeout_s=90)["JobState"]
        assert (state, jobs.output(job_id).count(seen)) == ("COMPLETED", 2 * len(requests)), (
            head,
            jobs.output(job_id),
        )
        command = f'cd "$0" && salloc {" ".join(argv)} sh -e steps.sh 2>&1'
        text = jobs.cluster.slurm("runuser", "-u", "nobody", "--", "sh", "-c", command, str(jobs.folder))
        assert text.count(seen) == 2 * len(requests), (head, text)


def test_an_interrupted_step_ends_although_its_srun_was_started_again(jobs: Jobs) -> None:
    step = "srun --cpus-per-gpu=1 sh -c 'touch begun; exec sleep 600'"
    wrap = f"{step} & while [ ! -e begun ]; do sleep 0.1; done; kill -TERM $!; wait $!; echo ended"
    job_id = jobs.accepted("--gres=gpu:1", "--wrap", wrap)
    assert jobs.wait(job_id, timeout_s=40)["JobState"] == "COMPLETED"
    assert "ended" in jobs.output(job_id)


def test_a_sites_own_script_still_sees_a_gpu_in_srun_and_salloc(jobs: Jobs) -> None:
    """A site may refuse jobs without a GPU in its own job_submit.lua, which looks for the word."""
    for command in ("srun", "salloc"):
        for said in SAID.values():
            argv = (command, "--gres=gpu:1", *said, "scontrol", "show", "job")
            try:
                text = jobs.cluster.slurm("runuser", "-u", "nobody", "--", *argv)
            except CommandError as exc:
                pytest.fail(exc.output)
            assert re.search(r"(?m)^ +TresPerNode=\S*gpu\b", text), text
