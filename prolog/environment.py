"""What a placed job finds in its environment."""

from __future__ import annotations

from prolog.place import Placed
from slurm_plugin.core.config import PartitionConfig
from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.events import EventKind
from slurm_plugin.core.log import HookLog
from slurm_plugin.core.node_records import Reservation
from slurm_plugin.core.units import to_mib_up
from slurm_plugin.node.node import Node
from slurm_plugin.slurm.hook_env import HookJob


def environment_of(
    node: Node, job: HookJob, placed: Placed, settings: PartitionConfig, log: HookLog
) -> dict[str, str]:
    """Return the variables of every task of a placed job; MPS is started on the way where it is wanted.

    A job of several GPUs runs without MPS; rad-monitor's guard holds it to what it booked.

    RAD_* are for the user's information and for TaskProlog; nothing of ours believes them afterwards.

    Args:
        node: This node.
        job: The job, as slurmd tells its hooks.
        placed: What the job holds.
        settings: The partition's settings.
        log: Where it is written down if MPS could not be started.
    """
    held = placed.reservation
    if held is None:
        return {}
    variables = {
        "CUDA_VISIBLE_DEVICES": ",".join(held.gpus),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "RAD_JOB": str(job.job_id),
        "RAD_KIND": held.kind,
        "RAD_BOOKED_MIB": str(to_mib_up(held.booked_bytes)),
        "RAD_CAP_MIB": str(to_mib_up(held.limit_bytes)),
        "RAD_SEATS": ",".join(str(seat) for seat in held.seats),
        "RAD_CONFINED": "1" if node.confined else "0",
        "RAD_RESTART": str(held.restart),
        "RAD_PLACEMENT": placed.placement.reason,
    }
    if held.estimate_bytes is not None:
        variables["RAD_ESTIMATE_MIB"] = str(to_mib_up(held.estimate_bytes))
    if held.part_of_one_gpu and settings.sharing == "mps":
        variables |= _mps(node, job, placed, held, settings, log)
    return variables


def _mps(
    node: Node,
    job: HookJob,
    placed: Placed,
    held: Reservation,
    settings: PartitionConfig,
    log: HookLog,
) -> dict[str, str]:
    cap_bytes = held.limit_bytes if settings.memory_cap else None
    if node.config.telemetry.source == "simulated":
        return {} if cap_bytes is None else {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={to_mib_up(cap_bytes)}M"}
    if not node.config.features.mps or placed.reading is None:
        return {}
    from slurm_plugin.mps import Mps

    try:
        return Mps(node.run, clock=node.clock).acquire(
            gpu=held.gpus[0],
            user_id=job.user_id,
            job_id=job.job_id,
            cap_bytes=cap_bytes,
            gpu_bytes=placed.reading.usable_bytes,
            thread_percentage=settings.mps_thread_percentage,
        )
    except MpsError as exc:
        log.say(EventKind.WITHOUT_MPS, str(exc))
        return {}
