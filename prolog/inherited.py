"""Find variables that another RAD job left in a task's environment: sbatch passes on its submitter's variables.

A job submitted from inside a job would inherit the other job's MPS daemon and limit. With an exclusive GPU, or in an
unmanaged partition, it would find no GPU through that pipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from prolog.growing import GROWING

JOB = "RAD_JOB"
"""Name of the job that the other variables were made for."""

SET = "RAD_SET"
"""Names of the variables below that the user had not set."""

DEVICE_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""CUDA numbers GPUs as Slurm does."""

FOR_PROGRAMS = {**GROWING, **DEVICE_ORDER}
"""Variables that programs read, which users may set themselves, and the values that RAD sets."""

OF_A_JOB = (
    JOB,
    "RAD_KIND",
    "RAD_BOOKED_MIB",
    "RAD_CAP_MIB",
    "RAD_GPU_INDICES",
    "RAD_CONFINED",
    "RAD_RESTART",
    "RAD_PLACEMENT",
    "RAD_ESTIMATE_MIB",
    "RAD_GPUS",
    "RAD_SHARDS",
    "RAD_TASKS",
    "SLURM_STEP_GRES",
    SET,
)

OF_MPS = (
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_LOG_DIRECTORY",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "APPTAINERENV_CUDA_VISIBLE_DEVICES",
    "SINGULARITYENV_CUDA_VISIBLE_DEVICES",
)


def inherited(task: Mapping[str, str], *, job_id: int, run: Path) -> tuple[str, ...]:
    """Return the variables of a task that were made for another job.

    A user's own MPS daemon stays, with its settings.

    Args:
        task: The task's environment.
        job_id: Its job.
        run: `paths.run`, below which RAD's daemons have their pipes.

    >>> left = {"RAD_JOB": "6", "RAD_KIND": "shared", "CUDA_MPS_PIPE_DIRECTORY": "/run/rad/mps/GPU-0/1000/pipe"}
    >>> inherited(left, job_id=7, run=Path("/run/rad")), inherited(left, job_id=6, run=Path("/run/rad"))
    (('RAD_JOB', 'RAD_KIND', 'CUDA_MPS_PIPE_DIRECTORY'), ())
    """
    if task.get(JOB, str(job_id)) == str(job_id):
        return ()
    pipe = task.get("CUDA_MPS_PIPE_DIRECTORY")
    own_daemon = pipe is not None and not Path(pipe).is_relative_to(run)
    names = OF_A_JOB if own_daemon else (*OF_A_JOB, *OF_MPS)
    added = task.get(SET, "").split(",")
    unchanged = (name for name, value in FOR_PROGRAMS.items() if name in added and task.get(name) == value)
    return (*(name for name in names if name in task), *unchanged)


def newly_set(changes: Mapping[str, str | None], task: Mapping[str, str]) -> dict[str, str]:
    """Return a variable that lists what RAD sets for programs and the user had not, so that it stays within this job.

    Args:
        changes: The variables that RAD sets in a task.
        task: The task's environment.

    >>> newly_set({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "RAD_KIND": "whole"}, {})
    {'RAD_SET': 'CUDA_DEVICE_ORDER'}
    >>> newly_set({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    {}
    """
    names = [name for name in FOR_PROGRAMS if name in changes and name not in task]
    return {SET: ",".join(names)} if names else {}
