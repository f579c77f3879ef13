"""From a line of a trace to what Slurm queues: the submission, by the production `decide` or by a baseline's rule."""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.booking.decide import decide
from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.records.submission import Booking, Claims, GresItem, JobRequest, MemoryEstimate
from slurm_plugin.core.units import shards_for
from slurm_plugin.simulate.cluster import PARTITION
from slurm_plugin.simulate.interference import Load
from slurm_plugin.simulate.progress import Job
from slurm_plugin.simulate.trace_job import TraceJob
from slurm_plugin.simulate.workloads import Told

Baseline = Literal["rad", "whole", "hand"]
HAND_ROUNDING = 1.2
"""Users who size by hand add this to what they have seen."""
LIMIT_FACTOR, LEAST_LIMIT_S = 2.0, 1800.0
"""A trace without time limits: users ask for twice the time, and for half an hour at least."""

LEAST_SEEN_S = 60.0
"""A shorter run tells nothing of its activity (epilog/report.py)."""


class Known(NamedTuple):
    """What RAD knows of what a job does to a GPU.

    Attributes:
        smact: SM activity; None if nothing is known.
        busy: Share of the time in which any of its kernels runs; None likewise.
        seen: Whether earlier runs showed it, with their waits for data.
    """

    smact: float | None = None
    busy: float | None = None
    seen: bool = False


NOTHING = Known()


class Refused(Exception):
    """The submission is refused; the text is what the user reads."""


def make_job(
    trace: TraceJob,
    load: Load,
    config: Config,
    *,
    baseline: Baseline,
    errors: Sequence[Told],
    usable_bytes: int,
    start_up_s: float = 0.0,
    compress: float = 1.0,
    known: Known = NOTHING,
    slot_s: float | None = None,
    draw: int = 0,
) -> Job:
    """Return a job as it enters the queue.

    Args:
        trace: What was submitted.
        load: What it does to a GPU.
        config: rad.toml, with the partition PARTITION.
        baseline: "rad"; "whole": a GPU each; "hand": the user asks for shards.
        errors: How wrong RAD's estimates are; without any it has no estimates.
        usable_bytes: Usable memory of one GPU.
        start_up_s: What each of its starts takes before the first step; limits allow for it.
        compress: How many times faster than its users knew it the trace is.
        known: What RAD knows of what it does.
        slot_s: Jobs that ask for longer run in slots of so long; None: they run at once.
        draw: Which of many draws of the errors is taken.

    Raises:
        Refused: It is larger than a GPU.
    """
    partition = config.partition(PARTITION)
    assert partition is not None
    peak_bytes = min(trace.memory_bytes or usable_bytes, usable_bytes)
    limit_s = trace.limit_s or max(LEAST_LIMIT_S / compress, LIMIT_FACTOR * trace.duration_s)
    if baseline == "rad":
        estimate = _estimate(trace, known, errors, draw)
        booking, shards = _by_rad(trace.gpus, estimate, config, partition)
    elif baseline == "hand" and trace.gpus == 1 and trace.memory_bytes:
        booking, shards = _by_hand(peak_bytes, partition)
    else:
        booking, shards = None, partition.shards
    slotted = slot_s is not None and limit_s > slot_s
    if slot_s is not None:
        limit_s = min(limit_s, slot_s)
    return Job(
        trace=trace,
        load=load,
        peak_bytes=peak_bytes,
        limit_s=60.0 * math.ceil((limit_s + start_up_s) / 60.0),  # Slurm counts limits in minutes
        booking=booking,
        shards=shards,
        gpus=trace.gpus,
        eligible_s=trace.submit_s,
        queued_s=trace.submit_s,
        slotted=slotted,
        left_s=trace.duration_s,
        start_up_s=start_up_s,
    )


def _by_rad(
    gpus: int, estimate: MemoryEstimate | None, config: Config, partition: PartitionConfig
) -> tuple[Booking | None, int]:
    """Return what RAD books, and the shards of each GPU: more than its memory where compute counts."""
    request = JobRequest(user_id=1000, gres=(GresItem(name="gpu", count=gpus),), partition=PARTITION)
    claims = Claims(gpus=gpus) if gpus > 1 else Claims()
    rewrite = decide(request, claims, estimate, config=config, spread=0 if gpus == 1 else gpus)
    if rewrite.refusal:
        raise Refused(rewrite.refusal)
    booking = rewrite.booking
    shards = booked_shards(booking, partition)
    if booking is None or booking.kind == "whole":
        return booking, shards
    return booking, max(shards, booking.shards // booking.gpus)


def _by_hand(peak_bytes: int, partition: PartitionConfig) -> tuple[Booking | None, int]:
    """Return what users ask for who size by hand: shards, or a GPU if it takes all of them."""
    shards = min(partition.shards, shards_for(int(peak_bytes * HAND_ROUNDING), partition.shard_bytes))
    if shards == partition.shards:
        return None, shards
    return Booking(kind="shared", memory_bytes=shards * partition.shard_bytes), shards


def seen_activity(jobs: Sequence[Job]) -> dict[str, float]:
    """Return the SM activity of each workload as rad-monitor saw it, mean over its runs of a minute or more."""
    found: dict[str, list[float]] = {}
    for job in jobs:
        if job.own_s >= LEAST_SEEN_S:
            found.setdefault(job.trace.workload, []).append(job.own_activity_s / job.own_s)
    return {workload: statistics.fmean(values) for workload, values in found.items()}


def booked_shards(booking: Booking | None, partition: PartitionConfig) -> int:
    """Return what a booking is in shards of one GPU.

    Args:
        booking: What was booked; None for a whole GPU.
        partition: The partition's settings.
    """
    if booking is None or booking.memory_bytes is None:
        return partition.shards
    return shards_for(booking.memory_bytes, partition.shard_bytes)


def _estimate(trace: TraceJob, known: Known, errors: Sequence[Told], draw: int) -> MemoryEstimate | None:
    """Return what the estimator would say; the same program gets the same error each time."""
    if trace.memory_bytes is None or not errors:
        return None
    program = zlib.crc32(trace.workload.encode())
    told = errors[zlib.crc32(trace.workload.encode(), draw) % len(errors)]
    return MemoryEstimate(
        estimate_bytes=int(trace.memory_bytes * told.estimate),
        upper_bytes=int(trace.memory_bytes * told.bound),
        confidence=None,
        quantiles=tuple(
            (share, int(trace.memory_bytes * ratio))
            for share, ratio in zip(SHARES, told.quantiles, strict=True)
        ),
        smact=known.smact,
        smact_seen=known.seen,
        busy=known.busy,
        source="simulated",
        profile_key=f"{program:08x}",
    )
