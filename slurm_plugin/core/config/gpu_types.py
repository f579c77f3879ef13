"""Types of GPUs in a partition that has several, as rad.toml describes them."""

from __future__ import annotations

from gpumemnet.records import frozen


@frozen
class GpuType:
    """The GPUs of one type in a partition that has several, as `[partition.NAME.gpus.TYPE]`.

    Attributes:
        gpu_memory_mib: Usable memory of one; 0 takes it from shards_per_gpu.
        shards_per_gpu: Shards of one, as in gres.conf; 0 derives them from gpu_memory_mib.
        gpu: GPU name for the base memory of a process on it, as `rad-estimate --gpu` takes it; "" for the site's.
        conv_base_mib: That memory of a process that uses convolutions, as `rad calibrate` measures it on such a GPU;
            0 takes the figure of `gpu`.
        base_mib: The same for other processes.
    """

    gpu_memory_mib: int = 0
    shards_per_gpu: int = 0
    gpu: str = ""
    conv_base_mib: int = 0
    base_mib: int = 0


@frozen
class GpuSize:
    """What one GPU of a type can be divided into.

    Attributes:
        type: As in gres.conf; "" for GPUs without a separate table.
        shards: Shards of one.
        capacity_bytes: Memory of one that jobs can use.
    """

    type: str
    shards: int
    capacity_bytes: int
