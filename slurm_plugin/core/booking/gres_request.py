"""Replace GPUs by shards: whether a request allows it, and what else of the request must change.

Shards are requested by node or by task. A task's shards lie on one GPU, and with `one-task-per-sharing` those of two
tasks on two: so a job of k GPUs is submitted to Slurm as k tasks, and its steps get the tasks that the user requested
(prolog/task_prolog.py). Where slurm.conf lets shards lie on several GPUs (MULTIPLE_SHARING_GRES_PJ), a job of one GPU
requests them by task, too: Slurm would split a request by node as soon as no GPU has all of it free.
"""

from __future__ import annotations

import re

from slurm_plugin.core.booking.gres_text import GPU_ENVIRONMENT, MEMORY_BY_GPU, count_of
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.records.submission import GresItem, JobRequest, RequestedTasks

ONE_TASK_PER_GPU = "one-task-per-sharing"
"""`--gres-flags` of sbatch(1); job_submit.lua sets its bit."""


def shard_fields(request: JobRequest, gres: str) -> dict[str, str]:
    """Return the job_desc changes that replace one GPU by shards.

    `gres` and not `tres_per_node`, because it is the one spelling that every version takes. Options that count by
    GPU are converted and cleared: Slurm refuses them without gres/gpu.

    Args:
        request: The job's request: one GPU.
        gres: The shards, as GRES: "shard:12".
    """
    fields = {"gres": f"{request.other_gres},{gres}" if request.other_gres else gres}
    if (request.gres_per_job or request.gres_per_task) and (request.tasks or 1) > 1:
        # Slurm may otherwise give the tasks several nodes, with shards on each.
        fields |= {"min_nodes": "1", "max_nodes": "1"}
    if request.gres_per_job:
        fields["tres_per_job"] = ""
    if request.gres_per_task:
        fields["tres_per_task"] = request.other_per_task
    if request.cpus_per_gpu is not None:
        fields |= {"cpus_per_tres": "", **_cpu_fields(request, request.cpus_per_gpu)}
    if request.memory_per_gpu_mib is not None:
        fields |= {"mem_per_tres": "", "min_mem_per_node": str(request.memory_per_gpu_mib)}
    if request.binds_gpus:
        fields["tres_bind"] = ""
    return fields


def _cpu_fields(request: JobRequest, cpus: int) -> dict[str, str]:
    """Return what requests the CPUs of one GPU.

    By node, as Slurm counts them: the job's environment and later changes of its CPUs are then those of a job with a
    GPU. But Slurm 22.05 takes no notice of these where tasks are stated on one node.
    """
    cpus = max(cpus, request.cpus_per_node or 0)
    if request.tasks is None:
        return {"pn_min_cpus": str(cpus)}
    cpus_per_task = -(-cpus // request.tasks) if request.tasks else 1
    if cpus_per_task == 1:
        return {}  # each task has one, or with --overcommit fewer
    return {"cpus_per_task": str(cpus_per_task), "min_cpus": str(cpus_per_task * request.tasks)}


def task_fields(request: JobRequest, gres: str, gpus: int) -> dict[str, str]:
    """Return the job_desc changes that replace several GPUs of one node by shards of as many GPUs.

    The CPUs stay as many, rounded up to a multiple of the GPUs.

    Args:
        request: The job's request: that many GPUs, or shards of one.
        gres: The shards of each GPU, as GRES: "shard:12".
        gpus: Number of GPUs.
    """
    cpus = _cpus_of_gpu(request, gpus)
    fields = {"gres": request.other_gres} if request.gres else {}
    if request.gres_per_job:
        fields["tres_per_job"] = ""
    others = re.sub(r"\bcpu([=:])\d+", rf"cpu\g<1>{cpus}", request.other_per_task)
    fields |= {
        "tres_per_task": ",".join(filter(None, (others, f"gres/{gres}"))),
        "num_tasks": str(gpus),
        "ntasks_per_node": str(gpus),
        "cpus_per_task": str(cpus),
        "min_cpus": str(cpus * gpus),
        "min_nodes": "1",
        "max_nodes": "1",
    }
    if gpus > 1:
        fields["gres_flags"] = ONE_TASK_PER_GPU
    if request.cpus_per_gpu is not None:
        fields["cpus_per_tres"] = ""
    if request.memory_per_gpu_mib is not None:
        fields |= {"mem_per_tres": "", "min_mem_per_node": str(request.memory_per_gpu_mib * gpus)}
    if request.binds_gpus:
        fields["tres_bind"] = ""
    return fields


def requested_tasks(request: JobRequest, gpus: int) -> RequestedTasks:
    """Return the tasks that the steps of a job get, where the request to Slurm has one for each GPU.

    Steps use what the CPUs were rounded up by: where fewer CPUs are left than a task needs, Slurm refuses a step as
    impossible that only has to wait for another step's shards (24.11.5, _step_test_gres in stepmgr.c).

    Args:
        request: The user's request.
        gpus: GPUs of the job.
    """
    tasks = request.tasks or 1
    cpus = 0
    if request.cpus_per_task or request.cpus_per_gpu is not None:
        cpus = _cpus_of_gpu(request, gpus) * gpus // tasks
    own_gpu = tasks == gpus > 1 and count_of(request.gres_per_task, "gpu") == 1
    return RequestedTasks(tasks=tasks, cpus=cpus, own_gpu=own_gpu)


def _cpus_of_gpu(request: JobRequest, gpus: int) -> int:
    """Return the CPUs for each GPU of a job, rounded up."""
    tasks = request.tasks or 1
    cpus = tasks * (request.cpus_per_task or 1)
    if request.cpus_per_gpu is not None:
        cpus = max(tasks, request.cpus_per_gpu * gpus)
    return -(-cpus // gpus)


def cleared_environment(request: JobRequest) -> dict[str, str]:
    """Return new values for the job's variables that name GPUs; "" blanks one."""
    of_gpu = {} if request.memory_per_gpu_mib is None else {MEMORY_BY_GPU: "1"}
    return dict.fromkeys(GPU_ENVIRONMENT, "") | {"SLURM_TRES_PER_TASK": request.other_per_task} | of_gpu


def gpu_obstacle(request: JobRequest, partition: PartitionConfig) -> str | None:
    """Return why shards cannot replace the GPUs of a request; None if they can.

    Args:
        request: The job's request.
        partition: The partition's settings.
    """
    if request.gpu_only_option is not None:
        return f"{request.gpu_only_option} requires a whole GPU"
    if request.before_shards:
        return "slurmctld has just started or taken over and has no shards yet"
    if request.whole_nodes:
        return "a job on whole nodes cannot share a GPU"
    if request.gres_per_socket:
        return "--gpus-per-socket requires a whole GPU"
    if any(item.name != "gpu" for item in request.gres_per_job):
        return "--gpus with other per-job resources requires a whole GPU"
    kinds = {item.type for item in _gpu_items(request) if item.type is not None}
    strange = kinds - {partition.gpu_type}
    if strange:
        return f"gpu:{min(strange)} requests a GPU type, and shards here have none"
    return None


def _gpu_items(request: JobRequest) -> tuple[GresItem, ...]:
    requested = (*request.gres, *request.gres_per_job, *request.gres_per_task)
    return tuple(item for item in requested if item.name == "gpu")
