"""What a submission becomes: every way to ask for one GPU ends as shards, and nothing else about the job changes."""

from __future__ import annotations

import re

import pytest

from lab.cluster import Cluster
from lab.config import shards_of
from lab.jobs import Jobs
from slurm_plugin.core.errors import CommandError

pytestmark = pytest.mark.cluster

WHOLE = shards_of(40960)
MODEL = "rad:memory=5G"
ONE_GPU = ["--gres=gpu:1", "--gres=gpu", "--gpus=1", "-G1", "--gpus-per-node=1", "--gpus-per-task=1 -n1"]
TRAIN = "python3 fake_train.py --memory 1G --seconds 0.1"


def gres(fields: dict[str, str]) -> str:
    """The request without the version's prefix; one that was left as it was typed may be per job."""
    return re.sub(r"^gres[:/]", "", fields.get("TresPerNode") or fields.get("TresPerJob", ""))


@pytest.mark.parametrize("options", ONE_GPU)
def test_one_gpu_in_any_spelling_becomes_shards_and_an_inner_srun_works(jobs: Jobs, options: str) -> None:
    job = jobs.accepted(*options.split(), f"--comment={MODEL}", "--wrap", f"srun {TRAIN}; srun {TRAIN}")
    done = jobs.wait(job)
    assert done["JobState"] == "COMPLETED", jobs.output(job)
    assert gres(done) == "shard:5"
    assert "TresPerJob" not in done
    assert jobs.output(job).count("phase 1 of 1 done") == 2


def test_a_job_that_is_submitted_from_inside_a_shared_job_is_a_job_like_any_other(jobs: Jobs) -> None:
    """sbatch hands on what its submitter has: another job's shards, MPS daemon and cap."""
    say = "echo found $RAD_KIND $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
    inner = f"sbatch -W --gpus=1 --output=inner.out --wrap '{say}'"
    job = jobs.accepted("--gpus=1", f"--comment={MODEL}", "--wrap", f"{say}; {inner}")
    assert jobs.wait(job)["JobState"] == "COMPLETED", jobs.output(job)
    assert "found shared 0=5120M" in jobs.output(job)
    assert (jobs.folder / "inner.out").read_text() == "found whole\n"


def test_the_users_words_stay_in_the_comment(jobs: Jobs) -> None:
    job = jobs.accepted("-H", "--gpus=1", f"--comment=my own words {MODEL}", "--wrap", "true")
    comment = jobs.fields(job)["Comment"]
    assert comment.startswith("my own words") and " rad2:shared:" in comment


def test_direct_srun_and_salloc_get_shards_too(jobs: Jobs) -> None:
    for command in ("srun", "salloc srun"):
        shell = f'cd {jobs.folder} && {command} --gpus=1 --comment={MODEL} sh -c "{TRAIN}; env"'
        if command.startswith("salloc"):
            shell = f'cd {jobs.folder} && salloc --gpus=1 --comment={MODEL} srun sh -c "{TRAIN}; env"'
        text = jobs.cluster.slurm("runuser", "-u", "nobody", "--", "sh", "-c", f"{shell} 2>&1", timeout_s=40)
        assert "phase 1 of 1 done" in text, text
        assert "SLURM_SHARDS_ON_NODE=5" in text, text


def test_array_tasks_each_get_shards_and_a_gpu(jobs: Jobs) -> None:
    job = jobs.accepted(
        "--array=0-3", "--gres=gpu:1", f"--comment={MODEL}", "--output=out.%a", "--wrap", TRAIN
    )
    for task in range(4):
        done = jobs.wait(f"{job}_{task}")
        assert (done["JobState"], gres(done)) == ("COMPLETED", "shard:5")
        assert "training on 1 GPU(s)" in (jobs.folder / f"out.{task}").read_text()


def test_test_only_submits_nothing(jobs: Jobs) -> None:
    before = set(jobs.all_fields())
    answer = jobs.submit("--test-only", "--gpus=1", f"--comment={MODEL}", "--wrap", "true")
    assert "to start at" in answer.messages
    assert set(jobs.all_fields()) == before


def test_a_held_job_can_be_changed_and_released(jobs: Jobs, cluster: Cluster) -> None:
    job = jobs.accepted("--hold", "--gpus=1", f"--comment={MODEL}", "--wrap", TRAIN)
    cluster.slurm("scontrol", "update", f"JobId={job}", "TimeLimit=5", "Name=renamed")
    assert jobs.fields(job)["TimeLimit"] == "00:05:00"
    cluster.slurm("scontrol", "release", str(job))
    done = jobs.wait(job)
    assert (done["JobState"], done["JobName"], gres(done)) == ("COMPLETED", "renamed", "shard:5")


def test_a_need_above_one_gpu_is_refused_with_the_number_that_fits(jobs: Jobs) -> None:
    answer = jobs.submit("--gpus=1", "--comment=rad:memory=60G", "--wrap", "true")
    assert answer.job_id is None
    assert "60.0 GiB" in answer.messages and "--gpus=2" in answer.messages


def test_more_shards_than_a_gpu_has_are_refused_with_the_number_that_fits(jobs: Jobs) -> None:
    answer = jobs.submit(f"--gres=shard:{WHOLE + 1}", "--wrap", "true")
    assert answer.job_id is None
    assert f"at most {WHOLE}" in answer.messages


def test_other_partitions_and_jobs_without_gpus_are_left_alone(jobs: Jobs) -> None:
    plain = jobs.submit("-H", "-p", "plain", "--gres=gpu:1", f"--comment={MODEL}", "--wrap", "true")
    none = jobs.submit("-H", f"--comment={MODEL}", "--wrap", "true")
    assert plain.job_id is not None and none.job_id is not None
    assert gres(jobs.fields(plain.job_id)) == "gpu:1"
    assert gres(jobs.fields(none.job_id)) == ""


def test_options_that_count_by_gpu_are_converted(jobs: Jobs) -> None:
    options = ["--gpus=1", "--cpus-per-gpu=3", "--mem-per-gpu=300"]
    job = jobs.accepted(*options, f"--comment={MODEL}", "--wrap", f"srun {TRAIN}")
    done = jobs.wait(job)
    assert (done["JobState"], done["NumCPUs"], gres(done)) == ("COMPLETED", "3", "shard:5"), jobs.output(job)
    assert "300M" in {done.get("MinMemoryNode"), done.get("MinMemoryCPU")}


def test_multi_gpu_jobs_keep_their_request(jobs: Jobs) -> None:
    job = jobs.accepted("-H", "--gpus-per-node=2", "--comment=rad:gpus=2,memory=5G", "--wrap", "true")
    assert gres(jobs.fields(job)) == "gpu:2"


def test_tasks_that_are_requested_by_node_share_the_gpu(jobs: Jobs) -> None:
    job = jobs.accepted(
        "-H", "--gpus=1", "-N1", "--ntasks-per-node=2", f"--comment={MODEL}", "--wrap", "true"
    )
    assert gres(jobs.fields(job)) == "shard:10"


def test_policy_exclusive_takes_all_of_a_gpu(jobs: Jobs) -> None:
    job = jobs.accepted("-H", "--gpus=1", "--comment=rad:memory=5G,policy=exclusive", "--wrap", "true")
    assert gres(jobs.fields(job)) in {f"shard:{WHOLE}", "gpu:1"}


def test_a_refused_srun_says_why(jobs: Jobs) -> None:
    with pytest.raises(CommandError) as refused:
        jobs.cluster.slurm("srun", "--gpus=1", "--comment=rad:memory=60G", "true", user="nobody")
    assert "60.0 GiB" in refused.value.output
