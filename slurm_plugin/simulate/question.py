"""What is to be simulated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.placement.choose import Pin
from slurm_plugin.simulate.jobs import Baseline
from slurm_plugin.slurm.versions import NEWEST, Version

Estimates = Literal["measured", "oracle", "none"]
Activity = Literal["told", "seen", "history", "none"]
Gradients = Literal["buckets", "one by one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A trace, a cluster and the settings to try on it.

    Attributes:
        trace: The trace's file.
        nodes: Number of nodes.
        gpus_per_node: GPUs of each.
        gpu_memory_mib: Usable memory of one GPU.
        settings: How RAD treats the partition.
        baseline: RAD, or what it is compared with.
        estimates: Where RAD's estimates come from.
        pin: Which GPUs of its node a job may get.
        compress: Jobs come, run and are limited this many times faster, as in a replay; what Slurm and RAD take for
            themselves (windows, delays, backfill) stays.
        start_up_s: What each start takes before the first step: imports, model, context.
        backfill_s: SchedulerParameters bf_interval.
        min_age_reserve_s: SchedulerParameters bf_min_age_reserve.
        kept: GPUs of each node without shards.
        activity: What RAD knows of a job's SM activity: as told before its first run, as of a training that never waits
            for data; as it really is ("seen"); as the monitor saw the same workload in an earlier run of the trace,
            where it was told ("history"); or nothing.
        gradients: How the GPUs of one job agree on them: in buckets, as DistributedDataParallel sends them, or each
            tensor by itself, which then waits by itself.
        never_wait: Whether trainings never wait for data, whatever the trace has.
        slurm: Slurm's version: how it counts and plans shards beside whole GPUs.
        drain: Whether shared jobs go where they keep the GPU busy for the shortest time longer, by `--time`.
        server_mib: What an MPS server and its contexts take of a GPU in use, which no shard counts.
        slot_min: Jobs that ask for longer run in slots of so many minutes; None: they run at once.
        partition: The one whose jobs of sacct's output count; None takes all.
        draw: Which of many draws of the estimator's errors is taken; jobs of one workload have the same one.
        assumed_mib: Peak of the one-GPU jobs whose peak the trace does not tell; None: it stays unknown.
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
    kept: int = 0
    activity: Activity = "told"
    gradients: Gradients = "buckets"
    never_wait: bool = False
    slurm: Version = NEWEST
    drain: bool = False
    server_mib: int = 0
    slot_min: float | None = None
    draw: int = 0
    partition: str | None = None
    assumed_mib: int | None = None
