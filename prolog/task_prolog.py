"""TaskProlog: `python -I -m prolog.task_prolog --config /etc/rad/rad.toml`, as the job's user, before each task.

Slurm reads what it prints: `export NAME=value` sets a variable of the task, `print TEXT` goes to the task's output.
A non-zero status cancels the task; that happens only if the Prolog put the job back, or if Slurm gave the job other
shards than it booked. Any fault of ours is silent.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.core.exits import Exit
from slurm_plugin.core.gres import GPU_ENVIRONMENT
from slurm_plugin.core.hook_args import config_path
from slurm_plugin.core.job_file import JobFile
from slurm_plugin.core.last_good import config_in_force
from slurm_plugin.core.supervise import hook_started_s, supervised

_TITLE = re.compile(rb"^slurmstepd: \[\d+(?:\+\d+)?\.(\w+)\]")
"""What slurmstepd calls itself, by job and step; the process that starts us still bears its name."""


def main() -> int:
    """Run the hook."""
    try:
        title = _title_of(os.getppid())
        job_id = os.environ.get("SLURM_JOB_ID", "")
        if not job_id.isdigit():
            return Exit.OK
        return supervised(lambda: _work(int(job_id), title), None, started_s=hook_started_s())
    except Exception:  # noqa: BLE001 - the task must start whatever happens here
        return Exit.OK


def _work(job_id: int, title: bytes) -> int:
    """Print what the Prolog left for the tasks of a job."""
    try:
        file = JobFile(Path(config_in_force(Path(config_path(sys.argv))).config.paths.run), job_id)
        refusal = file.refusal()
        if refusal is not None:
            print(f"print RAD: this job must not start on {os.uname().nodename} now: {refusal}")
            return Exit.REFUSED
        variables = file.variables()
        booked = variables.get("RAD_SHARDS", "")
        problem = mismatch(os.environ, booked) if is_batch_script(os.environ, title) else None
        if problem is not None:
            print(f"print RAD: {problem}")
            return Exit.REFUSED
        if file.exists():  # whatever we did not place runs as without us
            for name in blank_variables(os.environ):
                print(f"unset {name}")
            exports = task_variables(variables, os.environ) if variables else {}
            for name, value in exports.items():
                print(f"export {name}={value}")
    except Exception:  # noqa: BLE001 - the task must start whatever happens here
        return Exit.OK
    return Exit.OK


def task_variables(job: Mapping[str, str], task: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of one task: those of its job, with the GPUs that Slurm gave this step or task alone.

    Slurm's CUDA_VISIBLE_DEVICES counts the node's GPUs. Where cgroups confine devices it counts what this very task
    can reach (seen on 22.05: 0 for each of two tasks with a GPU each, and SLURM_STEP_GPUS does not tell them apart), so
    a task with fewer GPUs than its job keeps Slurm's own value.

    Args:
        job: What the Prolog left for every task of the job.
        task: The task's own environment, as slurmstepd made it.

    >>> task_variables({"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "RAD_SEATS": "2,3"}, {"CUDA_VISIBLE_DEVICES": "3"})
    {'CUDA_VISIBLE_DEVICES': 'GPU-b', 'RAD_SEATS': '2,3'}
    """
    gpus = job.get("CUDA_VISIBLE_DEVICES", "").split(",")
    seats = job.get("RAD_SEATS", "").split(",")
    own = task.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if job.get("RAD_CONFINED") == "1" and len(own) < len(gpus):
        return {name: value for name, value in job.items() if name != "CUDA_VISIBLE_DEVICES"}
    if job.get("RAD_CONFINED") == "1" or len(seats) != len(gpus) or not set(own) <= set(seats):
        return dict(job)
    chosen = [gpu for seat, gpu in zip(seats, gpus, strict=True) if seat in own]
    return {**job, "CUDA_VISIBLE_DEVICES": ",".join(chosen)}


def is_batch_script(task: Mapping[str, str], title: bytes) -> bool:
    """Return whether the task is the job's batch script and not one of an srun.

    The name of slurmstepd tells it, and no user chooses that. Where /proc hides it, the step's number does: the batch
    script has none on 22.05 and 24.11, and -5 on 26.05 (seen there; SLURM_BATCH_SCRIPT printed with a sign).

    Args:
        task: The task's own environment.
        title: Command line of its slurmstepd, from /proc; empty if it is hidden.

    >>> is_batch_script({"SLURM_STEP_ID": "0"}, b"slurmstepd: [12.batch]"), is_batch_script({}, b"slurmstepd: [12.0]")
    (True, False)
    >>> is_batch_script({"SLURM_STEP_ID": "-5"}, b""), is_batch_script({"SLURM_STEP_ID": "0"}, b"")
    (True, False)
    """
    found = _TITLE.match(title)
    return found[1] == b"batch" if found else not task.get("SLURM_STEP_ID", "").isdigit()


def mismatch(task: Mapping[str, str], booked: str) -> str | None:
    """Return why a job's tasks must not start with its booking; None if nothing speaks against it.

    Args:
        task: The batch script's environment. Slurm 22.05.6 and later tell there how many shards the job has; what
            they tell an srun is about its step alone, which may have fewer.
        booked: How many shards the job's stamp says; "" if the Prolog asked Slurm itself.

    >>> mismatch({"SLURM_SHARDS_ON_NODE": "1"}, "39")
    'Slurm gave this job 1 shards and it booked 39; cancel it and submit it again'
    >>> mismatch({"SLURM_SHARDS_ON_NODE": "39"}, "39"), mismatch({}, "39")
    (None, None)
    """
    given = task.get("SLURM_SHARDS_ON_NODE", "")
    if not given or not booked or given == booked:
        return None
    return f"Slurm gave this job {given} shards and it booked {booked}; cancel it and submit it again"


def _title_of(pid: int) -> bytes:
    """Return what a process calls itself (proc(5), /proc/PID/cmdline); nothing if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return b""


def blank_variables(task: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that job_submit could only blank, and that an srun of the job would refuse as blank.

    >>> blank_variables({"SLURM_MEM_PER_GPU": "", "SLURM_GPUS": "1"})
    ('SLURM_MEM_PER_GPU',)
    """
    return tuple(name for name in GPU_ENVIRONMENT if task.get(name) == "")


if __name__ == "__main__":
    sys.exit(main())
