"""Task variables for the steps of a job that was submitted with one task for each GPU (booking/gres_request.py).

Slurm's own variables of the batch script follow the job, and srun reads them back as its options. So the script gets
the tasks that its user requested, and all of the job's shards for each step, as every step of a job with `--gres=gpu:2`
has both GPUs. Tested on 24.11.5 and 26.05.5; the second puts the job's shards into SLURM_TRES_PER_TASK as well, and
srun refuses a step that requests shards in both ways.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurm_plugin.core.records.submission import RequestedTasks

_TASKS = "RAD_TASKS"


def task_variables(requested: RequestedTasks | None) -> dict[str, str]:
    """Return what the Prolog passes to TaskProlog about the tasks; nothing if the request to Slurm has the user's own.

    >>> task_variables(RequestedTasks(tasks=2, cpus=4))
    {'RAD_TASKS': '2 4 0'}
    """
    return (
        {} if requested is None else {_TASKS: f"{requested.tasks} {requested.cpus} {int(requested.own_gpu)}"}
    )


def script_variables(job: Mapping[str, str], script: Mapping[str, str]) -> dict[str, str | None]:
    """Return the changes to the environment of a batch script; None removes a variable.

    Args:
        job: Variables that the Prolog left for every task of the job.
        script: The script's own environment, as slurmstepd made it.

    >>> script_variables({"RAD_TASKS": "1 0 0"}, {"SLURM_SHARDS_ON_NODE": "20"})["SLURM_STEP_GRES"]
    'gres/shard:20'
    """
    if _TASKS not in job:
        return {}
    tasks, cpus, own_gpu = job[_TASKS].split()
    shards = script.get("SLURM_SHARDS_ON_NODE", "")
    changes: dict[str, str | None] = dict.fromkeys(
        ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE"), tasks
    )
    changes["SLURM_CPUS_PER_TASK"] = cpus if cpus != "0" else None
    per_task = [part for part in script.get("SLURM_TRES_PER_TASK", "").split(",") if "shard" not in part]
    per_task = [re.sub(r"^cpu([=:])\d+$", rf"cpu\g<1>{cpus}", part) for part in per_task if part]
    if cpus == "0":
        per_task = [part for part in per_task if not part.startswith("cpu")]
    if own_gpu == "1" and shards.isdigit():
        each = f"gres/shard:{int(shards) // int(tasks)}"
        per_task.append(each)
        changes["SLURM_TRES_BIND"] = each.replace("shard:", "shard:per_task:")
    elif shards.isdigit():
        changes["SLURM_STEP_GRES"] = f"gres/shard:{shards}"
    changes["SLURM_TRES_PER_TASK"] = ",".join(per_task) or None
    return changes
