"""The private Slurm itself: what the other tests stand on."""

from __future__ import annotations

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs

pytestmark = pytest.mark.cluster


def test_a_fake_training_runs_as_its_user_on_the_gpu_it_was_given(jobs: Jobs) -> None:
    job = jobs.submit(
        "-p", "plain", "--gres=gpu:1", "--wrap", "id -un; python3 fake_train.py --memory 3G --seconds 0.2"
    )
    assert job.job_id is not None, job.messages
    done = jobs.wait(job.job_id)
    assert done["JobState"] == "COMPLETED", jobs.output(job.job_id)
    assert jobs.output(job.job_id).startswith("nobody\ntraining on 1 GPU(s): GPU-")


def test_a_full_gpu_refuses_in_pytorchs_words(jobs: Jobs) -> None:
    job = jobs.submit(
        "-p", "plain", "--gres=gpu:1", "--wrap", "python3 fake_train.py --memory 3G,60G --seconds 0.4"
    )
    assert job.job_id is not None, job.messages
    done = jobs.wait(job.job_id)
    assert (done["JobState"], done["ExitCode"]) == ("FAILED", "1:0")
    assert (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 57.00 GiB. GPU 0 has"
        in jobs.output(job.job_id)
    )


def test_no_daemon_of_another_slurm_is_met(cluster: Cluster) -> None:
    config = cluster.slurm("scontrol", "show", "config")
    assert str(cluster.place.slurm_conf) in config
    assert {"munged", "slurmctld", "slurmd-n0"} <= set(cluster.daemons.running())
