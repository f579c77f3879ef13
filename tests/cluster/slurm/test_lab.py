"""The private Slurm itself: what the other tests stand on."""

from __future__ import annotations

import pytest

from lab.cluster import Cluster
from lab.jobs import Jobs

pytestmark = pytest.mark.cluster


def test_a_fake_training_runs_as_its_user_on_the_gpu_it_was_given(jobs: Jobs) -> None:
    job = jobs.accepted(
        "-p", "plain", "--gres=gpu:1", "--wrap", "id -un; python3 fake_train.py --memory 3G --seconds 0.2"
    )
    done = jobs.wait(job)
    assert done["JobState"] == "COMPLETED", jobs.output(job)
    assert jobs.output(job).startswith("nobody\ntraining on 1 GPU(s): GPU-")


def test_a_full_gpu_refuses_in_pytorchs_words(jobs: Jobs) -> None:
    job = jobs.accepted(
        "-p", "plain", "--gres=gpu:1", "--wrap", "python3 fake_train.py --memory 3G,60G --seconds 0.4"
    )
    done = jobs.wait(job)
    assert (done["JobState"], done["ExitCode"]) == ("FAILED", "1:0")
    assert (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 57.00 GiB. GPU 0 has"
        in jobs.output(job)
    )


def test_no_daemon_of_another_slurm_is_met(cluster: Cluster) -> None:
    config = cluster.slurm("scontrol", "show", "config")
    assert str(cluster.place.slurm_conf) in config
    assert {"munged", "slurmctld", "slurmd-n0"} <= set(cluster.daemons.running())
