"""Input of a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.placement.choose import Pin
from slurm_plugin.simulate.jobs import Baseline
from slurm_plugin.slurm.versions import NEWEST, Version

Estimates = Literal["measured", "oracle", "none"]
Gradients = Literal["buckets", "one by one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationQuestion:
    """A trace, a cluster and the settings to try on it.

    Attributes:
        trace: The trace's file.
        nodes: Number of nodes.
        gpus_per_node: GPUs of each.
        gpu_memory_mib: Usable memory of one GPU.
        settings: RAD's settings of the partition.
        baseline: RAD, or the baseline it is compared with.
        estimates: Source of RAD's estimates.
        pin: Which GPUs of its node a job may get.
        compress: Jobs arrive, run and are limited this many times faster, as in a replay; times of Slurm and RAD
            themselves (windows, delays, backfill) stay.
        start_up_s: Time from each start to the first step: imports, model, context.
        backfill_s: SchedulerParameters bf_interval.
        min_age_reserve_s: SchedulerParameters bf_min_age_reserve.
        gradients: How the GPUs of one job exchange gradients: in buckets, as DistributedDataParallel sends them, or
            each tensor separately, which then waits separately.
        slurm: Slurm's version: how it counts and plans shards next to whole GPUs.
        slot_min: Length of slots in minutes, used by jobs that request more time; None: no slots.
        partition: The partition whose jobs in sacct's output count; None takes all.
        assumed_mib: Peak of one-GPU jobs whose peak is not in the trace; None: it stays unknown.
        users: Number of users that the jobs are dealt out to; None: those that the trace names, else one.
        seed: Of that deal.
    """

    trace: Path
    nodes: int
    gpus_per_node: int
    gpu_memory_mib: int
    settings: PartitionConfig
    baseline: Baseline = "rad"
    estimates: Estimates = "measured"
    pin: Pin = "slurm"
    compress: float = 1.0
    start_up_s: float = 0.0
    backfill_s: float = 30.0
    min_age_reserve_s: float = 0.0
    gradients: Gradients = "buckets"
    slurm: Version = NEWEST
    slot_min: float | None = None
    partition: str | None = None
    assumed_mib: int | None = None
    users: int | None = None
    seed: int = 0
