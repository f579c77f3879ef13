"""A node without Slurm: simulated GPUs, a key and a rad.toml in one folder; hooks are run as slurmd starts them."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_plugin.core.comments.signed_comment import signed_booking
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.simulated_gpus import GpuSpec

KEY = b"h" * 32

_RAD_TOML = """{top}
[paths]
run = "{folder}/run"
state = "{folder}/state"
key = "{folder}/key"
log = "{folder}/log"
slurm_conf = "{folder}/no-slurm.conf"
[telemetry]
source = "simulated"
simulated_folder = "{folder}/gpus"
[partition.gpu]
collocate = true
shards_per_gpu = {shards}
{partition}
"""


def make_bare_node(folder: Path, *, gpus: int, gpu_gib: int, top: str = "", partition: str = "") -> Path:
    """Create the node and return its rad.toml.

    Args:
        folder: The existing folder for all files.
        gpus: Number of GPUs, named GPU-0 and so on.
        gpu_gib: Memory of each in GiB; a shard is one GiB.
        top: Lines of rad.toml before the first section.
        partition: Further lines of the partition "gpu".
    """
    (folder / "key").write_bytes(KEY)
    (folder / "key").chmod(0o600)
    devices = [
        GpuSpec(uuid=f"GPU-{index}", index=index, name="simulated", memory_total_bytes=gpu_gib * GIB)
        for index in range(gpus)
    ]
    SimulatedGpus.create(folder / "gpus", devices)
    rad_toml = folder / "rad.toml"
    rad_toml.write_text(_RAD_TOML.format(folder=folder, shards=gpu_gib, top=top, partition=partition))
    return rad_toml


def comment_of(booking: Booking) -> str:
    """Return the comment of a job of this process' user, with its signed booking."""
    return signed_booking(booking, user_id=os.geteuid(), key=KEY)


def job_environment(job_id: int, booking: Booking, *, gpu_indices: str = "0", **more: str) -> dict[str, str]:
    """Return the environment that slurmd passes to hooks for a job of this process's user in the partition "gpu"."""
    return {
        "SLURM_JOB_ID": str(job_id),
        "SLURM_JOB_UID": str(os.geteuid()),
        "SLURM_JOB_GID": str(os.getegid()),
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_GPUS": gpu_indices,
        "SLURM_JOB_COMMENT": comment_of(booking),
        **more,
    }
