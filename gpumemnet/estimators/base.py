"""What a process holds on its GPU beside PyTorch's tensors: its base, and NCCL where it is one of several.

NCCL's memory lies outside of PyTorch's allocator. It was measured between two GPUs of one host alone; what more ranks,
other GPUs or other links take is not known, and said.
"""

from __future__ import annotations

from gpumemnet.gpus import Gpu
from gpumemnet.profile.record import ModelProfile
from gpumemnet.units import to_mib_nearest

MEASURED_RANKS = 2


def base_bytes(profile: ModelProfile, gpu: Gpu) -> int:
    """Return what the process holds before its first tensor and for NCCL.

    Args:
        profile: The job; each of its several processes is taken to speak to the others by NCCL.
        gpu: Where it runs.
    """
    base = gpu.conv_base_bytes if profile.convs or profile.recurrents else gpu.base_bytes
    return base + (gpu.nccl_bytes if profile.gpus > 1 else 0)


def bucket_bytes(profile: ModelProfile) -> int:
    """Return what DistributedDataParallel keeps beside the gradients to send them; 0 for one process.

    A copy of all of them, which `gradient_as_bucket_view=True` (not the default) would save.

    Args:
        profile: Of a text: a trace has seen its buckets, or was given them where it was chosen for more processes.
    """
    return profile.gradient_bytes if profile.gpus > 1 else 0


def warnings(profile: ModelProfile, gpu: Gpu) -> tuple[str, ...]:
    """Return what the user should know of it, one sentence each.

    Args:
        profile: The job.
        gpu: Where it runs.
    """
    unlike = []
    if not gpu.nccl_measured:
        unlike.append("on another GPU")
    if profile.gpus > MEASURED_RANKS:
        unlike.append(f"between {MEASURED_RANKS} ranks, not {profile.gpus}")
    if profile.gpus < MEASURED_RANKS or not unlike:
        return ()
    counted = f"{to_mib_nearest(gpu.nccl_bytes)} MiB are counted for NCCL"
    return (f"{counted}, as measured {' and '.join(unlike)}; a first run tells what it takes",)
