"""What a process holds on each GPU before its first tensor: CUDA context, kernels, cuDNN and cuBLAS."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpumemnet.errors import SetupError
from gpumemnet.units import GIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One type of GPU.

    Attributes:
        name: As for `--gpu`.
        memory_bytes: Memory of the card.
        conv_base_bytes: Base of a process that uses cuDNN convolutions, beyond what PyTorch's allocator reserves.
        base_bytes: Base of other processes.
        cublas_bytes: Workspaces that PyTorch's cuBLAS handles take from the allocator.
        measured: True if the bases were measured; else they are assumed from GPUs of the same generation.
        note: Where the numbers come from.
    """

    name: str
    memory_bytes: int
    conv_base_bytes: int
    base_bytes: int
    cublas_bytes: int
    measured: bool
    note: str


_ASSUMED = "assumed: not measured; run `rad calibrate` on this GPU"

GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        # cuBLAS takes 32 MiB on Hopper and 2 * 4 MiB + 8 * 16 KiB elsewhere (aten/src/ATen/cuda/CublasHandlePool.cpp),
        # once per thread that multiplies: the script's own and autograd's. 64 to 65 MiB were measured on the H200.
        Gpu(
            name="h200",
            memory_bytes=141 * GIB,
            conv_base_bytes=760 * MIB,
            base_bytes=742 * MIB,
            cublas_bytes=64 * MIB,
            measured=True,
            note="measured with PyTorch 2.11, CUDA 13",
        ),
        Gpu(
            name="h100",
            memory_bytes=80 * GIB,
            conv_base_bytes=760 * MIB,
            base_bytes=742 * MIB,
            cublas_bytes=64 * MIB,
            measured=True,
            note="measured with PyTorch 2.11, CUDA 13",
        ),
        Gpu(
            name="a100",
            memory_bytes=40 * GIB,
            conv_base_bytes=720 * MIB,
            base_bytes=560 * MIB,
            cublas_bytes=16 * MIB,
            measured=False,
            note=_ASSUMED,
        ),
        Gpu(
            name="l40s",
            memory_bytes=48 * GIB,
            conv_base_bytes=680 * MIB,
            base_bytes=520 * MIB,
            cublas_bytes=16 * MIB,
            measured=False,
            note=_ASSUMED,
        ),
        Gpu(
            name="v100",
            memory_bytes=32 * GIB,
            conv_base_bytes=600 * MIB,
            base_bytes=450 * MIB,
            cublas_bytes=16 * MIB,
            measured=False,
            note=_ASSUMED,
        ),
    )
}
DEFAULT_GPU = "h200"


def gpu_named(name: str, *, base_bytes: int | None = None) -> Gpu:
    """Look a GPU up.

    Args:
        name: Any spelling that holds a known name: "h200", "NVIDIA H200", "a100-sxm4-40gb".
        base_bytes: The site's own measured base, which then counts for every process.

    Returns:
        The GPU.

    Raises:
        SetupError: No known name is in it.
    """
    wanted = name.lower()
    found = next((gpu for key, gpu in GPUS.items() if key in wanted), None)
    if found is None:
        raise SetupError(f"unknown GPU '{name[:40]}'; known: {', '.join(GPUS)}")
    if base_bytes is None:
        return found
    return replace(
        found, conv_base_bytes=base_bytes, base_bytes=base_bytes, measured=True, note="measured here"
    )
