"""Request part of a GPU, or a whole one, from Slurm, in a partition with one or several types of GPU.

Shards can have the type of the GPU whose device they share: `shard:a100:5` is allocated on an a100 only. slurm.conf
must name the type at its nodes' shards, or the job's own srun fails (seen on 22.05.8 and 24.11.5).
"""

from __future__ import annotations

from collections.abc import Iterable

from gpumemnet.records import frozen
from slurm_plugin.core.config.gpu_types import GpuType
from slurm_plugin.core.config.partition import PartitionConfig
from slurm_plugin.core.records.submission import GresItem


def type_of(partition: PartitionConfig, requested: Iterable[GresItem]) -> str:
    """Return the type of GPU that a request names, where rad.toml has a table for it; "" if any type will do.

    Args:
        partition: The partition's settings.
        requested: The GRES that the job requests.
    """
    named = {item.type for item in requested if item.name in ("gpu", "shard") and item.type}
    return min(named) if len(named) == 1 and min(named) in partition.gpus else ""


def gpus_for(partition: PartitionConfig | None, requested: Iterable[GresItem]) -> tuple[GpuType, ...]:
    """Return the settings in rad.toml of each type of GPU that a request may get; none for a type without a table.

    Args:
        partition: The partition's settings.
        requested: The GRES that the job requests.
    """
    if partition is None:
        return (GpuType(),)
    kind = type_of(partition, requested)
    if kind:
        return (partition.gpus[kind],)
    return tuple(partition.gpus.get(size.type, GpuType()) for size in partition.sizes) or (GpuType(),)


@frozen
class AvailableGres:
    """GRES that a job of a partition may request from Slurm.

    Attributes:
        partition: The partition's settings; for a job that names a type, those for GPUs of this type alone.
        type: The type that the job names, where rad.toml has a table for it; "" if any GPU will do.
        whole_as_gpu: A whole GPU is requested as `gpu:1` and not as all shards of a GPU.
        max_shard_gpus: On how many GPUs of a node the shards of one job may be; 0 where Slurm keeps them on one.
        guarded: rad-monitor stops jobs that use more than they may.
    """

    partition: PartitionConfig
    type: str = ""
    whole_as_gpu: bool = False
    max_shard_gpus: int = 0
    guarded: bool = True

    @classmethod
    def of(
        cls,
        partition: PartitionConfig,
        requested: Iterable[GresItem],
        *,
        whole_as_gpu: bool,
        max_shard_gpus: int = 0,
        guarded: bool = True,
    ) -> AvailableGres:
        """Return the available GRES for a request.

        Args:
            partition: The partition's settings.
            requested: The GRES that the job requests.
            whole_as_gpu: A whole GPU is requested as `gpu:1`.
            max_shard_gpus: Maximum number of GPUs of one node for the shards of one job.
            guarded: Whether rad-monitor may stop jobs.
        """
        kind = type_of(partition, requested)
        settings = partition.of_type(kind)
        limited = guarded and settings.on_overrun != "warn"
        return cls(
            partition=settings,
            type=kind,
            whole_as_gpu=whole_as_gpu,
            max_shard_gpus=max_shard_gpus,
            guarded=limited,
        )

    def share(self, shards: int) -> str:
        """Return the request for a number of shards of one GPU."""
        return _request("shard", self.type, shards)

    def whole(self, need_bytes: int | None, *, rerun: bool = False) -> str:
        """Return the request for a whole GPU that is large enough.

        If all GPUs are alike, or `gpu:1` is requested and all are large enough, any will do. Otherwise the smallest
        type that is large enough is requested by name: all shards of one type are only a part of another.

        Args:
            need_bytes: What the job needs; None if that is unknown, so that no GPU is excluded.
            rerun: The job has shards already. Slurm 22.05 then accepts a type only if they had one; without it the job
                gets as much as the smallest GPU that is large enough has.
        """
        sizes = self.partition.sizes
        fitting = [size for size in sizes if size.capacity_bytes >= (need_bytes or 0)] or list(sizes[-1:])
        alike = sizes[0].shards == sizes[-1].shards
        # A type without a name cannot be requested, unless all are alike.
        least = next((size for size in fitting if size.type or alike), fitting[-1])
        if self.whole_as_gpu and len(fitting) == len(sizes):
            return _request("gpu", self.type, 1)
        if self.whole_as_gpu and least.type:
            return _request("gpu", least.type, 1)
        return _request("shard", self.type if alike or rerun else least.type, least.shards)


def _request(name: str, kind: str, count: int) -> str:
    return ":".join(filter(None, (name, kind, str(count))))
