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
Activity = Literal["given", "seen", "history", "none"]
Gradients = Literal["buckets", "one by one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
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
        kept: GPUs of each node without shards.
        activity: RAD's knowledge of a job's SM activity: as estimated before its first run, for a training that never
            waits for data; the true value ("seen"); as the monitor measured the same workload in an earlier run of the
            trace, or the estimate without one ("history"); or none.
        gradients: How the GPUs of one job exchange gradients: in buckets, as DistributedDataParallel sends them, or
            each tensor separately, which then waits separately.
        never_wait: Whether trainings never wait for data, whatever the trace has.
        slurm: Slurm's version: how it counts and plans shards next to whole GPUs.
        drain: Whether shared jobs go where they extend the GPU's busy time the least, by `--time`.
        server_mib: Memory of an MPS server and its contexts on a GPU in use, which is not part of any shard.
        slot_min: Length of slots in minutes, used by jobs that request more time; None: no slots.
        partition: The partition whose jobs in sacct's output count; None takes all.
        draw: Number of the random draw of the estimator's errors; jobs of one workload have the same error.
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
    kept: int = 0
    activity: Activity = "given"
    gradients: Gradients = "buckets"
    never_wait: bool = False
    slurm: Version = NEWEST
    drain: bool = False
    server_mib: int = 0
    slot_min: float | None = None
    draw: int = 0
    partition: str | None = None
    assumed_mib: int | None = None
    users: int | None = None
    seed: int = 0
