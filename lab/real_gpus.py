"""The machine's GPUs as a node of a private cluster, if NVML finds any that are idle."""

from __future__ import annotations

from collections.abc import Sequence

from lab.config import RESERVED_MIB
from lab.daemons import LabError
from lab.place import NodeSpec
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.units import GIB, human, to_mib_up

LEAST_BYTES = 39 * GIB
"""Memory that the largest example and its context use."""

MOST = 4
"""With more GPUs, the demo's jobs would have no reason to share."""


def real_node(name: str, readings: Sequence[GpuReading]) -> NodeSpec:
    """Return a node with up to four GPUs of one size.

    Args:
        name: Slurm's node name.
        readings: NVML's readings of the machine's GPUs.

    Raises:
        LabError: No GPU is suitable; the text says why.
    """
    faults = {gpu.index: _fault(gpu) for gpu in readings}
    fit = [gpu for gpu in readings if faults[gpu.index] is None]
    if not fit:
        reported = "; ".join(f"GPU {index} {fault}" for index, fault in faults.items())
        raise LabError(f"no real GPU to use: {reported or 'NVML shows none'}")
    alike = [gpu for gpu in fit if gpu.usable_bytes == fit[0].usable_bytes][:MOST]
    # A GPU's memory includes the driver's reserve; one MiB is left for rounding.
    return NodeSpec(
        name=name,
        gpu_mib=tuple(to_mib_up(gpu.usable_bytes) - 1 + RESERVED_MIB for gpu in alike),
        devices=tuple(f"/dev/nvidia{gpu.index}" for gpu in alike),
    )


def _fault(gpu: GpuReading) -> str | None:
    """Return why a GPU is not used; None if it is suitable."""
    if gpu.mig or not gpu.healthy:
        return "is partitioned (MIG)" if gpu.mig else "needs a reset"
    if gpu.processes:
        return f"is in use by process {gpu.processes[0].pid}"
    return (
        None
        if gpu.free_bytes >= LEAST_BYTES
        else f"has {human(gpu.free_bytes)} free, not {human(LEAST_BYTES)}"
    )
