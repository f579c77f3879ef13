"""Two nodes with GPUs of different sizes, and jobs that span them."""

from __future__ import annotations

import pytest

from lab.config import shards_of
from lab.jobs import Jobs
from lab.watch import Watcher
from slurm_plugin.monitor.simulated import SimulatedGpus

pytestmark = pytest.mark.cluster

TRAIN = "python3 fake_train.py --memory 1G --seconds 0.3"


def test_heterogeneous_jobs_are_left_alone(wide_jobs: Jobs) -> None:
    job = wide_jobs.submit("--gres=gpu:1", ":", "--gres=gpu:1", "--wrap", TRAIN)
    assert job.job_id is not None, job.messages
    done = wide_jobs.wait(job.job_id, timeout_s=60)
    assert (done["JobState"], done["TresPerNode"].rpartition(":")[2]) == ("COMPLETED", "1")
    assert "rad2:" not in done.get("Comment", "")


def test_multi_node_jobs_get_what_they_asked_for(wide_jobs: Jobs) -> None:
    job = wide_jobs.submit("-N2", "--gres=gpu:2", "--wrap", f"srun {TRAIN}")
    assert job.job_id is not None, job.messages
    done = wide_jobs.wait(job.job_id)
    assert done["JobState"] == "COMPLETED", wide_jobs.output(job.job_id)
    assert wide_jobs.output(job.job_id).count("training on 2 GPU(s)") == 2


def test_jobs_share_on_both_nodes_within_each_nodes_own_gpus(wide_jobs: Jobs) -> None:
    wrap = (
        "--gpus=1",
        "--comment=rad:memory=30G",
        "--wrap",
        "python3 fake_train.py --memory 29G --seconds 3",
    )
    ids = []
    for _ in range(6):  # one on each small GPU, two on each large one
        job = wide_jobs.submit(*wrap)
        assert job.job_id is not None, job.messages
        ids.append(job.job_id)
    watcher = Watcher({node: SimulatedGpus(wide_jobs.cluster.place.gpus(node)) for node in ("n0", "n1")})

    def over() -> bool:
        watcher.sample()
        rows = wide_jobs.all_fields()
        return all(rows.get(job, {}).get("JobState") == "COMPLETED" for job in ids)

    wide_jobs.cluster.wait("six jobs complete", over, 90)
    assert watcher.fullest_share <= 1.0
    held = [(gpu, run) for job in ids for run in watcher.of(job) for gpu in run.gpus]
    assert {node for (node, _), _ in held} == {"n0", "n1"}
    assert not any(run.neighbours for (node, _), run in held if node == "n0")


def test_the_bound_at_submission_is_that_of_the_smallest_gpu(wide_jobs: Jobs) -> None:
    answer = wide_jobs.submit(f"--gres=shard:{shards_of(40960) + 1}", "--wrap", "true")
    assert answer.job_id is None
    assert f"at most {shards_of(40960)}" in answer.messages
