"""Shards in the place of one GPU: whether a request allows it, and what else of the request must change with it."""

from __future__ import annotations

from slurm_plugin.core.config import PartitionConfig
from slurm_plugin.core.gres import GPU_ENVIRONMENT
from slurm_plugin.core.records import GresItem, JobRequest


def shard_fields(request: JobRequest, gres: str) -> dict[str, str]:
    """Return the job_desc changes that put shards in the place of one GPU.

    `gres` and not `tres_per_node`, because it is the one spelling that every version takes. Options that count by
    GPU are converted and cleared: Slurm refuses them without gres/gpu.

    Args:
        request: What the job asks for: one GPU.
        gres: The shards, as GRES: "shard:12".
    """
    fields = {"gres": f"{request.other_gres},{gres}" if request.other_gres else gres}
    if request.gres_per_job or request.gres_per_task:
        fields |= {"min_nodes": "1", "max_nodes": "1"}  # one GPU in all was one node by itself
    if request.gres_per_job:
        fields["tres_per_job"] = ""
    if request.gres_per_task:
        fields["tres_per_task"] = request.other_per_task
    if request.cpus_per_gpu is not None:
        cpus_per_task = -(-request.cpus_per_gpu // (request.tasks or 1))
        fields |= {"cpus_per_tres": "", "cpus_per_task": str(cpus_per_task)}
        fields["min_cpus"] = str(cpus_per_task * (request.tasks or 1))
    if request.memory_per_gpu_mib is not None:
        fields |= {"mem_per_tres": "", "min_mem_per_node": str(request.memory_per_gpu_mib)}
    if request.binds_gpus:
        fields["tres_bind"] = ""
    return fields


def cleared_environment(request: JobRequest) -> dict[str, str]:
    """Return what the job's variables that name GPUs become; "" blanks one."""
    return dict.fromkeys(GPU_ENVIRONMENT, "") | {"SLURM_TRES_PER_TASK": request.other_per_task}


def gpu_obstacle(request: JobRequest, partition: PartitionConfig) -> str | None:
    """Return why shards cannot stand for the one GPU of a request; None if they can.

    Args:
        request: What the job asks for.
        partition: The partition's settings.
    """
    if request.gpu_only_option is not None:
        return f"{request.gpu_only_option} works only with a GPU of one's own"
    if request.whole_nodes:
        return "a job that takes whole nodes shares no GPU"
    if request.gres_per_socket:
        return "--gpus-per-socket works only with a GPU of one's own"
    if any(item.name != "gpu" for item in request.gres_per_job):
        return "--gpus together with other per-job resources works only with a GPU of one's own"
    kinds = {item.type for item in _gpu_items(request) if item.type is not None}
    strange = kinds - {partition.gpu_type}
    if strange:
        return f"gpu:{min(strange)} names a type of GPU, which a share of a GPU cannot have"
    return None


def _gpu_items(request: JobRequest) -> tuple[GresItem, ...]:
    asked = (*request.gres, *request.gres_per_job, *request.gres_per_task)
    return tuple(item for item in asked if item.name == "gpu")
