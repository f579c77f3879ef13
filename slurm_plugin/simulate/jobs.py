"""Convert a trace's line to a queued job: submission by the production `decide` or by a baseline's rule."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Literal

from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.booking.decide import decide
from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.records.submission import Booking, GresItem, JobRequest, MemoryEstimate, UserDirectives
from slurm_plugin.core.units import shards_for
from slurm_plugin.simulate.cluster import PARTITION
from slurm_plugin.simulate.gpus.interference import Load
from slurm_plugin.simulate.progress import SimulatedJob
from slurm_plugin.simulate.traces.job import TraceJob
from slurm_plugin.simulate.traces.workloads import MeasuredError

Baseline = Literal["rad", "whole", "hand"]
HAND_ROUNDING = 1.2
"""Factor that users who size by hand apply to the peak they have seen."""
LIMIT_FACTOR, LEAST_LIMIT_S = 2.0, 1800.0
"""For a trace without time limits: users request twice the time, and at least half an hour."""


class Refused(Exception):
    """The submission is refused; the text is shown to the user."""


def make_job(
    trace: TraceJob,
    load: Load,
    config: Config,
    *,
    baseline: Baseline,
    errors: Sequence[MeasuredError],
    usable_bytes: int,
    start_up_s: float = 0.0,
    compress: float = 1.0,
    slot_s: float | None = None,
) -> SimulatedJob:
    """Return a job as it enters the queue.

    Args:
        trace: The submission.
        load: Its load on a GPU; RAD expects as much of its first run, without waits for data.
        config: rad.toml, with the partition PARTITION.
        baseline: "rad"; "whole": a GPU each; "hand": the user requests shards.
        errors: Errors of RAD's estimates; if empty, it has no estimates.
        usable_bytes: Usable memory of one GPU.
        start_up_s: Time from each start to the first step; limits allow for it.
        compress: How many times faster the trace is than its users knew it.
        slot_s: Length of slots, used by jobs that request more time; None: no slots.

    Raises:
        Refused: It is larger than a GPU.
    """
    partition = config.partition(PARTITION)
    assert partition is not None
    peak_bytes = min(trace.memory_bytes or usable_bytes, usable_bytes)
    limit_s = trace.limit_s or max(LEAST_LIMIT_S / compress, LIMIT_FACTOR * trace.duration_s)
    if baseline == "rad":
        estimate = _estimate(trace, load, errors)
        booking, shards = _by_rad(trace.gpus, estimate, config, partition)
    elif baseline == "hand" and trace.gpus == 1 and trace.memory_bytes:
        booking, shards = _by_hand(peak_bytes, partition)
    else:
        booking, shards = None, partition.shards
    slotted = slot_s is not None and limit_s > slot_s
    if slot_s is not None:
        limit_s = min(limit_s, slot_s)
    return SimulatedJob(
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
    """Return RAD's booking, and the shards of each GPU: more than its memory where compute counts."""
    request = JobRequest(user_id=1000, gres=(GresItem(name="gpu", count=gpus),), partition=PARTITION)
    stated = UserDirectives(gpus=gpus) if gpus > 1 else UserDirectives()
    rewrite = decide(request, stated, estimate, config=config, max_shard_gpus=0 if gpus == 1 else gpus)
    if rewrite.refusal:
        raise Refused(rewrite.refusal)
    booking = rewrite.booking
    shards = booked_shards(booking, partition)
    if booking is None or booking.kind == "whole":
        return booking, shards
    return booking, max(shards, booking.shards // booking.gpus)


def _by_hand(peak_bytes: int, partition: PartitionConfig) -> tuple[Booking | None, int]:
    """Return the request of users who size by hand: shards, or a GPU if it takes all of them."""
    shards = min(partition.shards, shards_for(int(peak_bytes * HAND_ROUNDING), partition.shard_bytes))
    if shards == partition.shards:
        return None, shards
    return Booking(kind="shared", memory_bytes=shards * partition.shard_bytes), shards


def booked_shards(booking: Booking | None, partition: PartitionConfig) -> int:
    """Return a booking in shards of one GPU.

    Args:
        booking: The booking; None for a whole GPU.
        partition: The partition's settings.
    """
    if booking is None or booking.memory_bytes is None:
        return partition.shards
    return shards_for(booking.memory_bytes, partition.shard_bytes)


def _estimate(trace: TraceJob, load: Load, errors: Sequence[MeasuredError]) -> MemoryEstimate | None:
    """Return the simulated estimate; the same program gets the same error each time."""
    if trace.memory_bytes is None or not errors:
        return None
    program = zlib.crc32(trace.workload.encode())
    error = errors[program % len(errors)]
    return MemoryEstimate(
        estimate_bytes=int(trace.memory_bytes * error.estimate),
        upper_bytes=int(trace.memory_bytes * error.bound),
        confidence=None,
        quantiles=tuple(
            (share, int(trace.memory_bytes * ratio))
            for share, ratio in zip(SHARES, error.quantiles, strict=True)
        ),
        smact=load.smact,
        busy=load.busy,
        source="simulated",
        profile_key=f"{program:08x}",
    )
