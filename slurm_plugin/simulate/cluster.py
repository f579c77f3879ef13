"""The simulated cluster and its settings."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.placement.choose import Pin
from slurm_plugin.slurm.versions import NEWEST, Version

PARTITION = "gpu"
"""The one partition, in rad.toml and in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCluster:
    """Nodes of one kind, with Slurm's and RAD's settings.

    Attributes:
        nodes: Number of nodes.
        per_node: GPUs per node.
        memory_bytes: Usable memory of a GPU.
        config: rad.toml.
        pin: Which GPUs of its node a job may get.
        managed: Whether RAD places the jobs; otherwise they run on the GPUs that Slurm assigned.
        backfill_s: SchedulerParameters bf_interval; Slurm's default.
        min_age_reserve_s: SchedulerParameters bf_min_age_reserve: jobs that have waited for less may be passed.
        began_s: When the trace begins, in seconds since the epoch: backfill plans starts by whole minutes of the clock.
        slurm: Slurm's version: how it counts and plans shards next to whole GPUs.
        requeue_s: Slurm's minimum delay before a requeued job can start on its node again.
    """

    nodes: int
    per_node: int
    memory_bytes: int
    config: Config
    pin: Pin = "slurm"
    managed: bool = True
    backfill_s: float = 30.0
    min_age_reserve_s: float = 0.0
    began_s: float = 0.0
    slurm: Version = NEWEST
    requeue_s: float = 3.0

    @property
    def settings(self) -> PartitionConfig:
        """Return RAD's settings of the partition."""
        found = self.config.partition(PARTITION)
        assert found is not None
        return found
