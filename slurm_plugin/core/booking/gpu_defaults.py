"""Add what Slurm gives a job for each GPU by default, as a job with shards does not get it from Slurm.

Slurm applies DefCpuPerGPU and DefMemPerGPU (slurm.conf(5)) to gres/gpu alone, and not where the user states CPUs per
task or memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpumemnet.records import frozen, replace
from slurm_plugin.core.booking.bookings import gpus_of
from slurm_plugin.core.records.submission import JobRequest

ANY_PARTITION = ""
"""Key of what holds in partitions that state nothing."""


@frozen
class GpuDefaults:
    """What a job gets for each GPU if it states nothing.

    Attributes:
        cpus: DefCpuPerGPU; None for one CPU per task.
        memory_mib: DefMemPerGPU (host memory); None for Slurm's other defaults.
    """

    cpus: int | None = None
    memory_mib: int | None = None


def defaults_of(name: str, defaults: Mapping[str, GpuDefaults]) -> GpuDefaults:
    """Return the defaults of a partition.

    Args:
        name: Its name.
        defaults: By partition, with `ANY_PARTITION` for all others.
    """
    return defaults.get(name) or defaults.get(ANY_PARTITION) or GpuDefaults()


def with_gpu_defaults(
    request: JobRequest, defaults: Mapping[str, GpuDefaults], default_partition: str
) -> JobRequest:
    """Return a request that states the defaults of its partition; of several partitions the largest ones.

    Args:
        request: The user's request.
        defaults: By partition, with `ANY_PARTITION` for all others.
        default_partition: The partition of a job that names none.
    """
    if not defaults or not gpus_of(request):
        return request
    names = (request.partition or default_partition).split(",")
    found = [defaults_of(name, defaults) for name in names]
    cpus = max((one.cpus for one in found if one.cpus), default=None)
    memory_mib = max((one.memory_mib for one in found if one.memory_mib), default=None)
    if request.cpus_per_gpu is None and request.cpus_per_task is None:
        request = replace(request, cpus_per_gpu=cpus)
    if request.memory_per_gpu_mib is None and not request.states_memory:
        request = replace(request, memory_per_gpu_mib=memory_mib)
    return request
