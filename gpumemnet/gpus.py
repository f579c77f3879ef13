"""Memory of a process on each GPU type before its first tensor: CUDA context, kernels, cuDNN and cuBLAS."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from gpumemnet.errors import SetupError
from gpumemnet.gpu_memory.rules import numbers
from gpumemnet.gpu_memory.rules.numbers import Status


class Gpu(NamedTuple):
    """One type of GPU.

    Attributes:
        name: Name, as for `--gpu`.
        memory_bytes: Memory of the GPU.
        conv_base_bytes: Base of a process that uses cuDNN convolutions, beyond what PyTorch's allocator reserves.
        base_bytes: Base of other processes.
        nccl_bytes: NCCL's addition to the base of each process of a job of two; more ranks were not measured.
        nccl_alone_bytes: NCCL's addition to the base of a process that is alone in its group.
        nccl_measured: True if that was measured on this GPU; else it is the reference GPU's.
        cublas_bytes: Workspaces that PyTorch's cuBLAS handles allocate.
        mps_server_bytes: Memory of each user's MPS server in addition to its clients; no job books it.
        mps_client_bytes: CUDA context of one of its clients, within the base.
        measured: True if the bases were measured; else they are assumed from GPUs of the same generation.
        note: Source of the numbers.
    """

    name: str
    memory_bytes: int
    conv_base_bytes: int
    base_bytes: int
    nccl_bytes: int
    nccl_alone_bytes: int
    nccl_measured: bool
    cublas_bytes: int
    mps_server_bytes: int
    mps_client_bytes: int
    measured: bool
    note: str


_ASSUMED = "assumed: not measured; run `rad calibrate` on this GPU"
NAMES = ("h200", "h100", "a100", "l40s", "v100")
"""Names in RAD's table; a site's table adds others."""
DEFAULT_GPU = "h200"


@lru_cache(maxsize=1)
def gpus() -> dict[str, Gpu]:
    """Return the known types of GPUs by name, from the tables of rules."""
    known = {}
    bases = {rule.gpu: rule for rule in numbers.rules() if (rule.library, rule.name) == ("process", "base")}
    with_nccl = {rule.gpu for rule in numbers.rules() if rule.library == "nccl"}
    for name, base in bases.items():
        process, cublas, mps, nccl = (numbers.of(lib, name) for lib in ("process", "cublas", "mps", "nccl"))
        measured = base.status is Status.MEASURED
        known[name] = Gpu(
            name=name,
            memory_bytes=process["memory"],
            conv_base_bytes=process["conv_base"],
            base_bytes=process["base"],
            nccl_bytes=nccl["two_ranks"],
            nccl_alone_bytes=nccl["one_rank"],
            nccl_measured=name in with_nccl,
            cublas_bytes=cublas["workspaces"],
            mps_server_bytes=mps["server"],
            mps_client_bytes=mps["client"],
            measured=measured,
            note=f"measured with {base.release}" if measured else _ASSUMED,
        )
    return known


def gpu_named(name: str) -> Gpu:
    """Look up a GPU.

    Args:
        name: Any text that contains a known name: "h200", "NVIDIA H200", "a100-sxm4-40gb".

    Returns:
        The GPU.

    Raises:
        SetupError: It contains no known name.
    """
    found = _known(name)
    if found is None:
        raise SetupError(f"unknown GPU '{name[:40]}'; known: {', '.join(gpus())}")
    return found


def _known(name: str) -> Gpu | None:
    """Return the GPU whose name a text contains, not as the beginning of a longer number: an A1000 is no A100."""
    return next((gpu for key, gpu in gpus().items() if re.search(rf"{key}(?!\d)", name.lower())), None)


def gpu_of_memory(name: str, memory_bytes: int) -> Gpu:
    """Return a GPU with the user's memory size; one that is not in the table has the bases of the default GPU.

    Args:
        name: The user's name for it.
        memory_bytes: Its memory.
    """
    known = _known(name)
    if known is not None:
        return known._replace(memory_bytes=memory_bytes)
    assumed = gpu_named(DEFAULT_GPU)
    return assumed._replace(
        name=name[:40],
        memory_bytes=memory_bytes,
        measured=False,
        nccl_measured=False,
        note=_ASSUMED,
    )
