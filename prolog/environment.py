"""Environment of a placed job, and the MPS server that enforces its limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prolog.inherited import DEVICE_ORDER
from prolog.place import Placed
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.core.records.node import Demand
from slurm_plugin.core.units import to_mib_up
from slurm_plugin.node.facts import NodeGpu, read_facts
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.node.hook_env import HookJob

if TYPE_CHECKING:
    from slurm_plugin.mps import Mps

_OF_CONTAINERS = ("APPTAINERENV_CUDA_VISIBLE_DEVICES", "SINGULARITYENV_CUDA_VISIBLE_DEVICES")
"""A container sees the MPS pipe only if it is mounted there, and without it 0 is the node's first GPU. So it gets the
UUID, which the daemon accepts, too (Apptainer's user guide, "Environment and Metadata")."""


def environment_of(
    node: Node, job: HookJob, placed: Placed, settings: PartitionConfig, *, mps: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of every task of a placed job.

    RAD_* are for the user's information and for TaskProlog; RAD does not trust them afterwards.

    Args:
        node: This node.
        job: The job, as slurmd passes it to its hooks.
        placed: The job's allocation.
        settings: The partition's settings.
        mps: Its MPS settings.
    """
    allocation = placed.allocation
    if allocation is None:
        return {}
    variables = {
        **DEVICE_ORDER,
        "RAD_GPUS": ",".join(allocation.gpus),
        "RAD_JOB": str(job.job_id),
        "RAD_KIND": allocation.kind,
        "RAD_BOOKED_MIB": str(to_mib_up(allocation.booked_bytes)),
        "RAD_CAP_MIB": str(to_mib_up(allocation.limit_bytes)),
        "RAD_GPU_INDICES": ",".join(str(gpu_index) for gpu_index in allocation.gpu_indices),
        "RAD_CONFINED": "1" if node.confined else "0",
        "RAD_RESTART": str(allocation.restart),
        "RAD_PLACEMENT": placed.placement.reason,
    }
    facts = read_facts(node)
    named = visible_devices(
        allocation.gpus,
        () if facts is None else facts.gpus,
        form=settings.visible_devices,
        confined=node.confined,
        served="CUDA_MPS_PIPE_DIRECTORY" in mps,
    )
    if named is not None:
        variables["CUDA_VISIBLE_DEVICES"] = named
    if named != variables["RAD_GPUS"] and "CUDA_MPS_PIPE_DIRECTORY" in mps:
        variables |= dict.fromkeys(_OF_CONTAINERS, variables["RAD_GPUS"])
    if allocation.estimate_bytes is not None:
        variables["RAD_ESTIMATE_MIB"] = str(to_mib_up(allocation.estimate_bytes))
    return {**variables, **mps}


def visible_devices(
    gpus: Sequence[str], node_gpus: Sequence[NodeGpu], *, form: str, confined: bool, served: bool
) -> str | None:
    """Return CUDA_VISIBLE_DEVICES of a job; None where Slurm's own value is right.

    A number is a GPU's position among all GPUs in the order of their PCI addresses, as in NVML (CUDA C++ Programming
    Guide, CUDA_DEVICE_ORDER). An MPS daemon that serves one GPU numbers it 0.

    Args:
        gpus: UUIDs of the job's GPUs.
        node_gpus: All GPUs of the node, in NVML's order; empty if they are not known.
        form: The partition's `visible_devices`.
        confined: Cgroups let the job reach only its own devices, and Slurm counts those.
        served: The job runs under an MPS daemon of its one GPU.
    """
    numbers = {node_gpu.uuid: str(number) for number, node_gpu in enumerate(node_gpus)}
    if form == "uuid" or any(node_gpu.mig for node_gpu in node_gpus):
        return ",".join(gpus)
    if confined:
        return None
    if served:
        return "0"
    return ",".join(numbers[gpu] for gpu in gpus) if all(gpu in numbers for gpu in gpus) else ",".join(gpus)


def mps_of(
    node: Node, job: HookJob, placed: Placed, settings: PartitionConfig, demand: Demand, log: HookLog
) -> dict[str, str] | None:
    """Start MPS for a placed job if required, and return the job's MPS settings; None if it did not start.

    A job of several GPUs runs without MPS; rad-monitor's guard limits it to its booking.

    Args:
        node: This node.
        job: The job, as slurmd passes it to its hooks.
        placed: The job's allocation.
        settings: The partition's settings.
        demand: What the job may use, and the key of its server.
        log: Logs an MPS that did not start.
    """
    allocation = placed.allocation
    wanted = node.config.features.mps and settings.sharing == "mps"
    if allocation is None or placed.reading is None or not (wanted and allocation.part_of_one_gpu):
        return {}
    cap_bytes = allocation.limit_bytes if settings.memory_cap else None
    try:
        if node.config.telemetry.source == "simulated":
            from slurm_plugin.mps.simulated import simulated_mps

            folder = Path(node.config.telemetry.simulated_folder)
            mps: Mps = simulated_mps(folder, node.run, clock=node.clock)
        else:
            from slurm_plugin.mps import Mps

            mps = Mps(node.run, clock=node.clock)
        return mps.acquire(
            gpu=allocation.gpus[0],
            user_id=job.user_id,
            job_id=job.job_id,
            cap_bytes=cap_bytes,
            gpu_bytes=placed.reading.usable_bytes,
            key=demand.server or None,
            processes=demand.processes,
        )
    except MpsError as exc:
        log.write(EventKind.WITHOUT_MPS, str(exc))
        return None
