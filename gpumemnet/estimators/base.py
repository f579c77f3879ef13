"""Memory of a process on its GPU apart from PyTorch's tensors: its base, and NCCL for several processes.

NCCL's memory lies outside PyTorch's allocator. It was measured only between two GPUs of one host; the memory for more
ranks, other GPUs or other links is unknown, and a warning says so.
"""

from __future__ import annotations

from gpumemnet.gpu_memory.rules import numbers
from gpumemnet.gpus import Gpu
from gpumemnet.profile.record import ModelProfile
from gpumemnet.units import to_mib_nearest

MEASURED_RANKS = 2


def base_bytes(profile: ModelProfile, gpu: Gpu) -> int:
    """Return the memory of a process before its first tensor, and for NCCL.

    Args:
        profile: The job; each of several processes is assumed to use NCCL.
        gpu: The job's GPU.
    """
    base = gpu.conv_base_bytes if profile.convs or profile.recurrents else gpu.base_bytes
    if profile.gpus > 1:
        return base + gpu.nccl_bytes
    return base + (gpu.nccl_alone_bytes if profile.nccl_alone else 0)


def without_cublas_bytes(profile: ModelProfile) -> int:
    """Return how much lower the base is because nothing multiplies matrices; 0 where something does."""
    multiplies = profile.linears + profile.attentions + profile.recurrents > 0
    return 0 if multiplies else numbers.of("process")["without_cublas"]


def bucket_bytes(profile: ModelProfile) -> int:
    """Return the gradient buckets that DistributedDataParallel keeps for communication; 0 for one process.

    A copy of all gradients, which `gradient_as_bucket_view=True` (not the default) would save.

    Args:
        profile: Profile of a text: a trace includes its buckets, or gets them when chosen for more processes.
    """
    return profile.gradient_bytes if profile.gpus > 1 else 0


def warnings(profile: ModelProfile, gpu: Gpu) -> tuple[str, ...]:
    """Return warnings for the user, one sentence each.

    Args:
        profile: The job.
        gpu: The job's GPU.
    """
    unlike = []
    if not gpu.nccl_measured:
        unlike.append("on another GPU")
    if profile.gpus > MEASURED_RANKS:
        unlike.append(f"between {MEASURED_RANKS} ranks, not {profile.gpus}")
    if profile.gpus < MEASURED_RANKS or not unlike:
        return ()
    counted = f"{to_mib_nearest(gpu.nccl_bytes)} MiB are counted for NCCL"
    return (f"{counted}, as measured {' and '.join(unlike)}; a first run shows what it needs",)
