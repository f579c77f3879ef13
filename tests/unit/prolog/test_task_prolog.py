from __future__ import annotations

from pathlib import Path

import pytest

from prolog.inherited import inherited
from prolog.task_identity import is_batch_script, own_job_id, slurmstepd_title
from prolog.task_prolog import earlier_end, rerun_line, task_variables, unnamed_gpu
from slurm_plugin.core.comments.admin_comment import Note
from slurm_plugin.core.config.load import Config

PAIR = {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "RAD_GPU_INDICES": "2,3", "RAD_CONFINED": "0"}


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
    assert step["RAD_GPU_INDICES"] == "2,3"


def test_where_devices_are_confined_a_job_with_one_gpu_has_it_by_uuid() -> None:
    one = {"CUDA_VISIBLE_DEVICES": "GPU-b", "RAD_GPU_INDICES": "3", "RAD_CONFINED": "1"}
    assert task_variables(one, {"CUDA_VISIBLE_DEVICES": "0"})["CUDA_VISIBLE_DEVICES"] == "GPU-b"


@pytest.mark.parametrize(
    ("note", "restarts", "line"),
    [
        (Note(event="recovered", restart=1, detail="out of GPU memory (torch)"), 1, True),
        (Note(event="recovered", restart=1, detail="out of GPU memory (torch)"), 2, False),
        (Note(event="woken", restart=1, detail="a GPU is free again"), 1, False),
        (Note(event="recovered", restart=1), 1, False),
        (None, 1, False),
    ],
)
def test_a_rerun_begins_with_why_the_run_before_ended(note: Note | None, restarts: int, line: bool) -> None:
    expected = "run 2 of this job; run 1: out of GPU memory (torch)" if line else ""
    assert rerun_line(note, restarts) == expected


@pytest.mark.parametrize("count", ["", "0", "many"])
def test_a_first_run_sends_slurm_no_query(count: str) -> None:
    assert earlier_end(7, Config(), {"SLURM_RESTART_COUNT": count}) == ""


def test_everything_else_is_the_jobs() -> None:
    job = {**PAIR, "CUDA_MPS_PIPE_DIRECTORY": "/run/rad/mps"}
    assert task_variables(job, {"CUDA_VISIBLE_DEVICES": "2"})["CUDA_MPS_PIPE_DIRECTORY"] == "/run/rad/mps"


@pytest.mark.parametrize(
    ("gpu_indices", "task"),
    [
        ("2", {}),  # a step of --gres=none has neither
        ("2", {"SLURM_SHARDS_ON_NODE": "39", "SLURM_GPUS_ON_NODE": "1", "SLURM_STEP_GPUS": "0"}),
        ("2,3", {"SLURM_SHARDS_ON_NODE": "39"}),
        ("", {"SLURM_SHARDS_ON_NODE": "39"}),
    ],
)
def test_a_step_keeps_what_slurm_says_of_its_gpus(gpu_indices: str, task: dict[str, str]) -> None:
    assert unnamed_gpu({"RAD_GPU_INDICES": gpu_indices}, task) == {}


def test_of_what_rad_set_only_its_own_variables_are_unset() -> None:
    line = "A\nexport RAD_KIND"
    task = {"RAD_JOB": "6", "RAD_SET": f"HOME,{line},CUDA_DEVICE_ORDER", "HOME": "", line: ""}
    assert inherited(task, job_id=7, run=Path("/run/rad")) == ("RAD_JOB", "RAD_SET")
    task["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    assert inherited(task, job_id=7, run=Path("/run/rad")) == ("RAD_JOB", "RAD_SET", "CUDA_DEVICE_ORDER")


@pytest.mark.parametrize("shells", [0, 1, 2])
def test_slurmstepd_is_found_above_the_shells_that_start_us(tmp_path: Path, shells: int) -> None:
    titles = [
        b"slurmd",
        b"slurmstepd: [12.batch]",
        b"/bin/sh\0/etc/slurm/site.sh",
        b"/bin/sh\0task_prolog.sh",
    ]
    for pid, title in enumerate(titles, start=10):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(title + b"\0")
        (tmp_path / str(pid) / "stat").write_bytes(b"%d (a ) b) S %d 1 1 0" % (pid, pid - 1))
    title = slurmstepd_title(11 + shells, proc=tmp_path)
    assert title == b"slurmstepd: [12.batch]" and is_batch_script({"SLURM_STEP_ID": "0"}, title)
    assert slurmstepd_title(10, proc=tmp_path) == b"", "no parent is known"


@pytest.mark.parametrize(
    ("reported", "title", "job_id"),
    [
        ("6", b"slurmstepd: [6.batch]", 6),
        ("6", b"slurmstepd: [7.0]", 7),  # a heterogeneous job's second component
        ("6", b"slurmstepd: [6+1.0]", 7),
        ("6", b"", 6),
        ("", b"slurmstepd: [7.0]", None),
        ("x", b"", None),
    ],
)
def test_a_component_of_a_heterogeneous_job_is_known_by_its_own_id(
    reported: str, title: bytes, job_id: int | None
) -> None:
    assert own_job_id({"SLURM_JOB_ID": reported}, title) == job_id
