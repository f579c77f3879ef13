"""`rad simulate`: read a trace, run it, print what came out."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from slurm_plugin.admin.simulate.engine import Cluster, Engine
from slurm_plugin.admin.simulate.interference import Load
from slurm_plugin.admin.simulate.jobs import EXACT, PARTITION, Baseline, Job, Refused, make_job, seen_activity
from slurm_plugin.admin.simulate.metrics import metrics
from slurm_plugin.admin.simulate.trace import compressed, read_trace
from slurm_plugin.admin.simulate.workloads import estimate_errors, load_of, measured
from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config import Config, PartitionConfig, load_config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.placement import Pin
from slurm_plugin.core.units import from_mib

Estimates = Literal["measured", "oracle", "none"]
Activity = Literal["told", "seen", "history", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be simulated.

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
        kept: GPUs of each node without shards.
        activity: What RAD knows of a job's SM activity: as told before its first run, as of a training that never waits
            for data; as it really is ("seen"); as the monitor saw the same workload in an earlier run of the trace,
            where it was told ("history"); or nothing.
        never_wait: Whether trainings never wait for data, whatever the trace has.
        drain: Whether shared jobs go where they keep the GPU busy for the shortest time longer, by `--time`.
        server_mib: What an MPS server and its contexts take of a GPU in use, which no shard counts.
        slot_min: Jobs that ask for longer run in slots of so many minutes; None: they run at once.
        partition: The one whose jobs of sacct's output count; None takes all.
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
    kept: int = 0
    activity: Activity = "told"
    never_wait: bool = False
    drain: bool = False
    server_mib: int = 0
    slot_min: float | None = None
    partition: str | None = None
    assumed_mib: int | None = None


def simulate(question: Question, clock: Clock, *, show_progress: bool = False) -> dict[str, Any]:
    """Run a trace and return its figures.

    Args:
        question: What is to be simulated.
        clock: Tells how long the simulation itself took.
        show_progress: Draw a progress bar on the error output.

    Raises:
        ConfigError: The trace cannot be read, or no job of it fits the cluster.
    """
    began_s = clock.monotonic_s()
    seen: Mapping[str, float] = {}
    if question.activity == "history":
        earlier = _made(replace(question, activity="told"), seen)
        for gpu in earlier.engine.state.gpus:
            gpu.learns = True
        seen = seen_activity(earlier.engine.run().jobs)
    made = _made(question, seen)
    if show_progress:
        import click

        with click.progressbar(length=made.jobs, file=sys.stderr, label="jobs ended") as bar:
            result = made.engine.run(bar.update)
    else:
        result = made.engine.run()
    return metrics(result) | {
        "left_out": dict(made.left_out),
        "unknown_workloads": made.unknown,
        "simulated_in_s": round(clock.monotonic_s() - began_s, 2),
    }


@dataclass(frozen=True, slots=True)
class _Made:
    """A simulation before its first event."""

    engine: Engine
    jobs: int
    unknown: int
    left_out: Mapping[str, int]


def _made(question: Question, seen: Mapping[str, float]) -> _Made:
    """Read the trace, book its jobs and set the cluster up."""
    trace = read_trace(question.trace, question.partition)
    settings = replace(question.settings, collocate=True, gpu_memory_mib=question.gpu_memory_mib)
    config = Config(partitions={PARTITION: settings}, default_partition=PARTITION)
    usable_bytes = from_mib(question.gpu_memory_mib)
    known = measured()
    errors = {"measured": estimate_errors(), "oracle": EXACT, "none": ()}[question.estimates]
    left_out = Counter(trace.left_out)
    jobs: list[Job] = []
    for original, row in zip(trace.jobs, compressed(trace, question.compress).jobs, strict=True):
        if row.gpus > question.gpus_per_node:
            left_out["more GPUs than a node has"] += 1
            continue
        if question.assumed_mib is not None and row.gpus == 1 and row.memory_bytes is None:
            row = replace(row, memory_bytes=from_mib(question.assumed_mib))
        load = load_of(original, known)
        if question.never_wait:
            load = replace(load, duty=1.0)
        try:
            jobs.append(
                make_job(
                    row,
                    load,
                    config,
                    baseline=question.baseline,
                    errors=errors,
                    usable_bytes=usable_bytes,
                    start_up_s=question.start_up_s,
                    compress=question.compress,
                    slot_s=None
                    if question.slot_min is None
                    else 60.0 * question.slot_min / question.compress,
                    smact=_known_activity(question.activity, load, seen.get(row.workload)),
                )
            )
        except Refused:
            left_out["larger than a GPU"] += 1
    if not jobs:
        raise ConfigError(f"{question.trace}: no job fits this cluster: {dict(left_out)}")
    cluster = Cluster(
        nodes=question.nodes,
        per_node=question.gpus_per_node,
        memory_bytes=usable_bytes,
        config=config,
        pin=question.pin,
        managed=question.baseline == "rad",
        backfill_s=question.backfill_s,
        kept=question.kept,
        drain=question.drain,
        server_bytes=from_mib(question.server_mib),
    )
    unknown = sum(job.trace.workload not in known for job in jobs)
    return _Made(Engine(cluster, jobs), len(jobs), unknown, left_out)


def _known_activity(activity: Activity, load: Load, seen: float | None) -> float | None:
    """Return what RAD knows of a job's SM activity when it is submitted."""
    if activity == "none":
        return None
    if activity == "seen":
        return round(load.mean_smact, 3)
    return load.smact if seen is None else round(seen, 3)


def settings_of(config: Path | None, partition: str | None) -> PartitionConfig:
    """Return the settings to try: those of a partition of rad.toml, or the defaults without a file.

    Args:
        config: Path of rad.toml; None takes the defaults.
        partition: Its name; None takes the only one.

    Raises:
        ConfigError: The file cannot be read, or does not say which partition is meant.
    """
    if config is None:
        return PartitionConfig()
    found = load_config(config).partitions
    name = partition or (next(iter(found)) if len(found) == 1 else None)
    if name not in found:
        names = ", ".join(found) or "none"
        raise ConfigError(f"{config}: say which partition is meant with --partition; it has {names}")
    return found[name]


def as_text(figures: dict[str, Any]) -> str:
    """Return the figures for people, one a line."""
    return "\n".join(f"{name.replace('_', ' '):<20} {value}" for name, value in figures.items())


def as_json(figures: dict[str, Any]) -> str:
    """Return one JSON object."""
    return json.dumps(figures)
