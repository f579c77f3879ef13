"""TaskProlog: `python -I -m prolog.task_prolog --config /etc/rad/rad.toml`, as the job's user, before each task.

Slurm reads what it prints: `export NAME=value` sets a variable of the task, `print TEXT` goes to the task's output.
A non-zero status cancels the task. That happens only if the Prolog requeued the job, if the Prolog was killed and the
job is requeued now, if this run had no Prolog (own_run.py), or if Slurm gave the job other shards than it booked. Any
other internal error is silent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prolog.growing import growing
from prolog.inherited import inherited, newly_set
from prolog.own_run import MOST_TIMES, WHY, of_an_earlier_job, slurm_of, without_prolog
from prolog.task_identity import is_batch_script, own_job_id, slurmstepd_title
from slurm_plugin.core.booking.gres_text import (
    GPU_COUNTS,
    GPU_ENVIRONMENT,
    MEMORY_BY_GPU,
    count_of,
    parse_gres,
)
from slurm_plugin.core.booking.step_environment import script_variables
from slurm_plugin.core.config.last_good import config_in_force
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.exits import Exit
from slurm_plugin.core.hooks.args import config_path
from slurm_plugin.core.hooks.supervise import LIMITS, hook_started_s, supervised
from slurm_plugin.core.ledger.job_file import JobFile

if TYPE_CHECKING:  # an ordinary task starts without it
    from slurm_plugin.core.comments.admin_comment import Note

ANSWER_S = 2.0
"""Time-out of a query whose answer is only shown."""


def main() -> int:
    """Run the hook; with `--or-fail` the status shows whether it finished, for a caller that can do without."""
    undone = Exit.BUG if "--or-fail" in sys.argv else Exit.OK
    try:
        title = slurmstepd_title(os.getppid())
        job_id = own_job_id(os.environ, title)
        if job_id is None:
            return Exit.OK
        return supervised(
            lambda: _work(job_id, title, undone),
            lambda _: undone,
            started_s=hook_started_s(),
            limits=LIMITS["task_prolog"],
        )
    except Exception:  # noqa: BLE001 - the task must start whatever happens here
        return undone


def _work(job_id: int, title: bytes, undone: int) -> int:
    """Print the Prolog's variables for the tasks of a job, or why they do not start."""
    try:
        config = config_in_force(Path(config_path(sys.argv))).config
        file = JobFile(Path(config.paths.run), job_id)
        is_script = is_batch_script(os.environ, title)
        refusal = _not_placed(job_id, file, config, is_script=is_script)
        if refusal is not None:
            print(f"print RAD: the job did not start on {os.uname().nodename}: {refusal}")
            return Exit.REFUSED
        variables = file.variables()
        problem = _not_as_booked(job_id, file, variables, config) if is_script else None
        if problem is not None:
            print(f"print RAD: {problem}")
            return Exit.REFUSED
        for name, value in _changes(job_id, file, variables, config, is_script=is_script):
            print(f"unset {name}" if value is None else f"export {name}={value}")
        sys.stdout.flush()  # Slurm may not answer what follows
        if is_script and (before := earlier_end(job_id, config, os.environ)):
            print(f"print RAD: {before}")
    except Exception:  # noqa: BLE001 - the task must start whatever happens here
        return undone
    return Exit.OK


def _not_placed(job_id: int, file: JobFile, config: Config, *, is_script: bool) -> str | None:
    """Return why no task of this run starts; None if they may."""
    refusal = file.refusal()
    if refusal is not None:
        return refusal
    if file.unplaced() and requeue_unplaced(job_id, config, os.environ):
        return "its Prolog was killed, and the job is requeued"
    if without_prolog(job_id, config, os.environ, is_script=is_script):
        back = requeue(job_id, os.environ, most=MOST_TIMES)
        return f"{WHY}; {'the job is requeued' if back else 'resubmit it'}"
    return None


def _not_as_booked(job_id: int, file: JobFile, variables: Mapping[str, str], config: Config) -> str | None:
    """Return why a batch script must not start with its booking, and what follows; None if nothing contradicts it."""
    booked = variables.get("RAD_SHARDS", "")
    problem = mismatch(os.environ, booked)
    if problem is None or has_booked(job_id, booked, config):
        return None
    back = of_an_earlier_job(file, job_id, booked, config) and requeue(job_id, os.environ, most=1)
    return f"{problem}; {'the job is requeued' if back else 'cancel the job and resubmit it'}"


def _changes(
    job_id: int, file: JobFile, variables: Mapping[str, str], config: Config, *, is_script: bool
) -> Iterator[tuple[str, str | None]]:
    """Yield the variables of the task that change, in the order in which Slurm must see them; None unsets one."""
    left_over = inherited(os.environ, job_id=job_id, run=Path(config.paths.run))
    for name in left_over:
        yield name, None
    task = {name: value for name, value in os.environ.items() if name not in left_over}
    counts = typed_counts(task) if is_script else {}
    if MEMORY_BY_GPU in task:
        yield from ((name, None) for name in (MEMORY_BY_GPU, "SLURM_MEM_PER_NODE"))
    for name in counts:
        yield f"RAD_TYPED_{name}", None  # a job submitted from this one has other counts
    if not file.exists():  # an unplaced job runs without RAD
        return
    for name in blank_variables(task):
        yield name, None
    changes: dict[str, str | None] = {**task_variables(variables, task)}
    changes |= without_mps(variables) | growing(variables, task)
    changes |= script_variables(variables, task) if is_script else unnamed_gpu(variables, task)
    changes |= newly_set(changes, task)
    if counts and _rewrites_steps(config):
        changes |= counts
    yield from changes.items()


def earlier_end(job_id: int, config: Config, task: Mapping[str, str]) -> str:
    """Return why RAD requeued this job, for the start of its output; "" if it did not.

    By default Slurm overwrites the output of the run before, which shows the error. Only a rerun queries Slurm.

    Args:
        job_id: The job.
        config: rad.toml.
        task: The task's own environment.
    """
    restarts = task.get("SLURM_RESTART_COUNT", "")
    if not restarts.isdecimal() or restarts == "0":
        return ""
    from slurm_plugin.core.comments.admin_comment import read_note

    try:
        view = slurm_of(config, timeout_s=ANSWER_S).job(job_id)
    except SlurmError:
        return ""
    return rerun_line(None if view is None else read_note(view.admin_comment), int(restarts))


def rerun_line(note: Note | None, restarts: int) -> str:
    """Return the line about the run before; "" if the note is not about this rerun.

    Args:
        note: The note in the job's AdminComment.
        restarts: How often the job was requeued.

    >>> from slurm_plugin.core.comments.admin_comment import Note
    >>> rerun_line(Note(event="recovered", restart=1, detail="out of GPU memory"), 1)
    'run 2 of this job; run 1: out of GPU memory'
    """
    if note is None or note.event != "recovered" or note.restart != restarts or not note.detail:
        return ""
    return f"run {restarts + 1} of this job; run {restarts}: {note.detail}"


def requeue_unplaced(job_id: int, config: Config, task: Mapping[str, str]) -> bool:
    """Requeue a job whose Prolog was killed, with the user's rights; return whether it waits again.

    A job runs as Slurm would have run it if rad.toml does not manage its partition, if it was requeued often enough,
    or if it cannot be requeued (not batch, --no-requeue).

    Args:
        job_id: The job.
        config: rad.toml.
        task: The task's own environment.
    """
    from prolog.requeue import MOST_FOR_FAULTS

    settings = config.partition(task.get("SLURM_JOB_PARTITION", ""))
    managed = config.places and settings and settings.collocate
    return bool(managed) and requeue(job_id, task, most=MOST_FOR_FAULTS)


def requeue(job_id: int, task: Mapping[str, str], *, most: int) -> bool:
    """Requeue a job, with the user's rights; return whether it waits again.

    Args:
        job_id: The job.
        task: The task's own environment.
        most: Number of restarts from which it is not requeued again.
    """
    from slurm_plugin.slurm.commands import SlurmCommands

    restarts = task.get("SLURM_RESTART_COUNT", "")
    if restarts.isdecimal() and int(restarts) >= most:
        return False
    try:
        SlurmCommands(slurm_conf=task.get("SLURM_CONF", "")).requeue(job_id)
    except SlurmError:
        return False
    return True


def task_variables(job: Mapping[str, str], task: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of one task: those of its job, with the GPUs that Slurm gave this step or task alone.

    Slurm's CUDA_VISIBLE_DEVICES counts the node's GPUs. Where cgroups confine devices it counts what this task can
    reach (seen on 22.05: 0 for each of two tasks with a GPU each, and SLURM_STEP_GPUS does not distinguish them), so
    a task with fewer GPUs than its job keeps Slurm's own value.

    Args:
        job: What the Prolog left for every task of the job.
        task: The task's own environment, as slurmstepd made it.

    >>> task_variables({"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "RAD_GPU_INDICES": "2,3"}, {"CUDA_VISIBLE_DEVICES": "3"})
    {'CUDA_VISIBLE_DEVICES': 'GPU-b', 'RAD_GPU_INDICES': '2,3'}
    """
    if "CUDA_VISIBLE_DEVICES" not in job:
        return dict(job)
    gpus = job["CUDA_VISIBLE_DEVICES"].split(",")
    gpu_indices = job.get("RAD_GPU_INDICES", "").split(",")
    own = task.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if job.get("RAD_CONFINED") == "1" and len(own) < len(gpus):
        return {name: value for name, value in job.items() if name != "CUDA_VISIBLE_DEVICES"}
    if job.get("RAD_CONFINED") == "1" or len(gpu_indices) != len(gpus) or not set(own) <= set(gpu_indices):
        return dict(job)
    chosen = [gpu for gpu_index, gpu in zip(gpu_indices, gpus, strict=True) if gpu_index in own]
    return {**job, "CUDA_VISIBLE_DEVICES": ",".join(chosen)}


def unnamed_gpu(job: Mapping[str, str], task: Mapping[str, str]) -> dict[str, str]:
    """Return what names the job's one GPU in a step that has its shards, where Slurm leaves that out.

    Slurm does so for several tasks with --gpu-bind: 22.05 sets neither variable, 24.11 not the second. Scripts read
    the first to start torchrun.

    Args:
        job: What the Prolog left for every task of the job.
        task: The environment of a task of srun, as slurmstepd made it.

    >>> unnamed_gpu({"RAD_GPU_INDICES": "2"}, {"SLURM_SHARDS_ON_NODE": "39"})
    {'SLURM_GPUS_ON_NODE': '1', 'SLURM_STEP_GPUS': '2'}
    """
    gpu_index = job.get("RAD_GPU_INDICES", "")
    if "SLURM_SHARDS_ON_NODE" not in task or not gpu_index.isdecimal():
        return {}
    named = {"SLURM_GPUS_ON_NODE": "1", "SLURM_STEP_GPUS": gpu_index}
    return {name: value for name, value in named.items() if name not in task}


def without_mps(job: Mapping[str, str]) -> dict[str, str]:
    """Return variables that name a task's GPU by UUID if the MPS daemon's socket is gone: 0 is then the first GPU.

    Args:
        job: What the Prolog left for every task of the job.
    """
    pipe = job.get("CUDA_MPS_PIPE_DIRECTORY")
    if pipe is None or "CUDA_VISIBLE_DEVICES" not in job or Path(pipe, "control").exists():
        return {}
    return {"CUDA_VISIBLE_DEVICES": job.get("RAD_GPUS") or job["CUDA_VISIBLE_DEVICES"]}


def has_booked(job_id: int, booked: str, config: Config) -> bool:
    """Return whether a job has what it booked, according to Slurm; False if Slurm does not answer.

    SLURM_SHARDS_ON_NODE may come from another job: sbatch passes on its submitter's variables, and for a job with gpu:1
    Slurm never sets it.

    Args:
        job_id: The job.
        booked: Number of shards in its booking.
        config: rad.toml.
    """
    try:
        given = parse_gres(slurm_of(config).given(job_id))
    except SlurmError:
        return False
    return bool(given) and str(count_of(given, "shard")) == booked


def mismatch(task: Mapping[str, str], booked: str) -> str | None:
    """Return why a job's tasks must not start with its booking; None if nothing contradicts it.

    Args:
        task: The batch script's environment. Slurm 22.05.6 and later give there the job's number of shards; in an
            srun's environment they give its step's alone, which may be fewer.
        booked: Number of shards in the job's booking; "" if the Prolog queried Slurm itself.

    >>> mismatch({"SLURM_SHARDS_ON_NODE": "1"}, "39")
    'Slurm allocated 1 shard to this job and it booked 39'
    >>> mismatch({"SLURM_SHARDS_ON_NODE": "39"}, "39"), mismatch({}, "39")
    (None, None)
    """
    given = task.get("SLURM_SHARDS_ON_NODE", "")
    if not given or not booked or given == booked:
        return None
    return f"Slurm allocated {given} shard{'s' * (given != '1')} to this job and it booked {booked}"


def blank_variables(task: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that job_submit could only set to blank; an srun of the job would refuse them as blank.

    >>> blank_variables({"SLURM_MEM_PER_GPU": "", "SLURM_GPUS": "1"})
    ('SLURM_MEM_PER_GPU',)
    """
    return tuple(name for name in GPU_ENVIRONMENT if task.get(name) == "")


def typed_counts(task: Mapping[str, str]) -> dict[str, str]:
    """Return the counts of GPUs that job_submit.lua saved, by the name under which scripts read them.

    >>> typed_counts({"RAD_TYPED_SLURM_GPUS": "1", "SLURM_GPUS": ""})
    {'SLURM_GPUS': '1'}
    """
    found = {name: task.get(f"RAD_TYPED_{name}", "") for name in GPU_COUNTS}
    return {name: text for name, text in found.items() if text and "\n" not in text}


def _rewrites_steps(config: Config) -> bool:
    from slurm_plugin.slurm.files.conf_files import find_slurm_conf, rewrites_steps

    return rewrites_steps(find_slurm_conf(config.paths.slurm_conf, os.environ))


if __name__ == "__main__":
    sys.exit(main())
