from __future__ import annotations

import pytest

from prolog.task_prolog import task_variables

PAIR = {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "RAD_SEATS": "2,3", "RAD_CONFINED": "0"}


@pytest.mark.parametrize(
    ("slurm", "gpus"),
    [
        ("2,3", "GPU-a,GPU-b"),
        ("2", "GPU-a"),
        ("3", "GPU-b"),
        ("", "GPU-a,GPU-b"),
        ("GPU-a", "GPU-a,GPU-b"),
        ("0", "GPU-a,GPU-b"),
        (None, "GPU-a,GPU-b"),
    ],
)
def test_a_step_sees_the_gpus_that_slurm_gave_it(slurm: str | None, gpus: str) -> None:
    task = {} if slurm is None else {"CUDA_VISIBLE_DEVICES": slurm}
    assert task_variables(PAIR, task)["CUDA_VISIBLE_DEVICES"] == gpus


def test_where_devices_are_confined_a_smaller_step_keeps_slurms_count_of_its_own_gpus() -> None:
    confined = {**PAIR, "RAD_CONFINED": "1"}
    assert task_variables(confined, {"CUDA_VISIBLE_DEVICES": "0,1"})["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    step = task_variables(confined, {"CUDA_VISIBLE_DEVICES": "0"})
    assert "CUDA_VISIBLE_DEVICES" not in step
    assert step["RAD_SEATS"] == "2,3"


def test_where_devices_are_confined_a_job_with_one_gpu_has_it_by_uuid() -> None:
    one = {"CUDA_VISIBLE_DEVICES": "GPU-b", "RAD_SEATS": "3", "RAD_CONFINED": "1"}
    assert task_variables(one, {"CUDA_VISIBLE_DEVICES": "0"})["CUDA_VISIBLE_DEVICES"] == "GPU-b"


def test_everything_else_is_the_jobs() -> None:
    job = {**PAIR, "CUDA_MPS_PIPE_DIRECTORY": "/run/rad/mps"}
    assert task_variables(job, {"CUDA_VISIBLE_DEVICES": "2"})["CUDA_MPS_PIPE_DIRECTORY"] == "/run/rad/mps"
