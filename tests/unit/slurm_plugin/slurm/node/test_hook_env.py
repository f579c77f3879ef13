from __future__ import annotations

import pytest

from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.node.hook_env import HookJob, parse_indices

EPILOG_22_05 = {
    "CUDA_VISIBLE_DEVICES": "0",
    "SLURMD_NODENAME": "n0",
    "SLURM_JOB_COMMENT": "hello rad",
    "SLURM_JOB_DERIVED_EC": "0",
    "SLURM_JOB_EXIT_CODE2": "3:0",
    "SLURM_JOB_EXIT_CODE": "768",
    "SLURM_JOB_GID": "100",
    "SLURM_JOB_GPUS": "0,2",
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_JOB_RESTART_COUNT": "1",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_WORK_DIR": "/home/ada/my runs",
}


def test_a_hook_knows_its_job() -> None:
    job = HookJob.from_env(EPILOG_22_05)
    assert (job.job_id, job.user_id, job.group_id, job.user_name) == (12, 1000, 100, "ada")
    assert (job.gpu_indices, job.restart, job.exit_status) == ((0, 2), 1, 768)
    assert (job.work_dir, job.stdout, job.node, job.comment) == ("/home/ada/my runs", "", "n0", "hello rad")


def test_a_job_without_gpus_has_no_indices() -> None:
    env = {name: value for name, value in EPILOG_22_05.items() if name != "SLURM_JOB_GPUS"}
    assert HookJob.from_env(env).gpu_indices == ()


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_JOB_UID"])
def test_no_hook_without_job_and_owner(name: str) -> None:
    with pytest.raises(SlurmError):
        HookJob.from_env({key: value for key, value in EPILOG_22_05.items() if key != name})


@pytest.mark.parametrize("text", ["x", "1-", "0,,y", "-1"])
def test_nonsense_is_no_list_of_gpus(text: str) -> None:
    with pytest.raises(ValueError):
        parse_indices(text)
