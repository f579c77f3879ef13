"""From a line of a trace to what Slurm queues: the submission, by the production `decide` or by a baseline's rule."""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from slurm_plugin.admin.simulate.interference import Load
from slurm_plugin.admin.simulate.trace import TraceJob
from slurm_plugin.core.config import Config, PartitionConfig
from slurm_plugin.core.policy import decide
from slurm_plugin.core.records import Booking, Claims, GresItem, JobRequest, MemoryEstimate
from slurm_plugin.core.risk import SHARES
from slurm_plugin.core.units import shards_for

Baseline = Literal["rad", "whole", "hand"]
PARTITION = "gpu"
HAND_ROUNDING = 1.2
"""Users who size by hand add this to what they have seen."""
LIMIT_FACTOR, LEAST_LIMIT_S = 2.0, 1800.0
"""A trace without time limits: users ask for twice the time, and for half an hour at least."""

LEAST_SEEN_S = 60.0
"""A shorter run tells nothing of its activity (epilog/report.py)."""

Errors = Sequence[tuple[float, float]]
"""(estimate, bound) over the real peak, as an estimator has them."""
EXACT: Errors = ((1.0, 1.0),)


@dataclass(slots=True, eq=False)
class Job:
    """One job on its way through the simulation.

    Attributes:
        trace: What it is.
        load: What it does to a GPU.
        peak_bytes: GPU memory it really takes on each GPU.
        limit_s: Its time limit.
        booking: What it books; None if RAD leaves it alone.
        shards: What Slurm counts on each GPU: all of a GPU for a whole one.
        gpus: GPUs it asks for.
        start_up_s: Each time it starts, it imports and builds for so long before its first step.
        trains_s: When the run that is under way comes to its first step.
        cap_bytes: What its GPU lets it hold in this run; None if no more than it booked.
        slotted: Whether it runs in time slots: at the end of one it saves and goes back into the queue.
        slot_ends_s: When this run saves and leaves; never for a job without slots.
        queued_s: When it came into the queue, for its age there.
        ran_s: How long its earlier slots took.
        own_s: For how long its GPU's activity told of it alone, as rad-monitor counts it.
        own_activity_s: Integral of its part of that activity.
    """

    trace: TraceJob
    load: Load
    peak_bytes: int
    limit_s: float
    booking: Booking | None
    shards: int
    gpus: int
    priority: int = 0
    eligible_s: float = 0.0
    restart: int = 0
    held: tuple[int, ...] = ()
    seats: tuple[int, ...] = ()
    first_start_s: float | None = None
    start_s: float = 0.0
    end_s: float | None = None
    left_s: float = 0.0
    start_up_s: float = 0.0
    trains_s: float = 0.0
    rate: float = 1.0
    cap_bytes: int | None = None
    crashes: int = 0
    put_backs: int = 0
    doomed_s: float | None = None
    slotted: bool = False
    slot_ends_s: float = math.inf
    queued_s: float = 0.0
    ran_s: float = 0.0
    own_s: float = 0.0
    own_activity_s: float = 0.0
    lost_s: float = field(default=0.0)

    @property
    def number(self) -> int:
        """Return its number in the trace."""
        return self.trace.number

    @property
    def key(self) -> tuple[int, float, int]:
        """Return what the queue is sorted by: priority, then age."""
        return (-self.priority, self.queued_s, self.trace.number)

    @property
    def whole(self) -> bool:
        """Return whether it has GPUs of its own."""
        return self.booking is None or self.booking.kind == "whole"


class Refused(Exception):
    """The submission is refused; the text is what the user reads."""


def make_job(
    trace: TraceJob,
    load: Load,
    config: Config,
    *,
    baseline: Baseline,
    errors: Errors,
    usable_bytes: int,
    start_up_s: float = 0.0,
    compress: float = 1.0,
    smact: float | None = None,
    slot_s: float | None = None,
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
        smact: What RAD knows of its SM activity; None if nothing.
        slot_s: Jobs that ask for longer run in slots of so long; None: they run at once.

    Raises:
        Refused: It is larger than a GPU.
    """
    partition = config.partition(PARTITION)
    assert partition is not None
    peak_bytes = min(trace.memory_bytes or usable_bytes, usable_bytes)
    limit_s = trace.limit_s or max(LEAST_LIMIT_S / compress, LIMIT_FACTOR * trace.duration_s)
    gpus, shards, booking = trace.gpus, partition.shards, None
    if baseline == "hand" and gpus == 1 and trace.memory_bytes:
        shards = min(shards, shards_for(int(peak_bytes * HAND_ROUNDING), partition.shard_bytes))
        if shards < partition.shards:
            booking = Booking(kind="shared", memory_bytes=shards * partition.shard_bytes)
    if baseline == "rad":
        estimate = _estimate(trace, smact, errors)
        request = JobRequest(user_id=1000, gres=(GresItem(name="gpu", count=gpus),), partition=PARTITION)
        rewrite = decide(request, Claims(), estimate, config=config)
        if rewrite.refusal:
            raise Refused(rewrite.refusal)
        booking = rewrite.booking
        shards = booked_shards(booking, partition)
        if booking is not None and booking.kind == "shared":
            shards = max(shards, booking.shards)  # more than its memory where compute counts
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
        gpus=gpus,
        eligible_s=trace.submit_s,
        queued_s=trace.submit_s,
        slotted=slotted,
        left_s=trace.duration_s,
        start_up_s=start_up_s,
    )


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


def _estimate(trace: TraceJob, smact: float | None, errors: Errors) -> MemoryEstimate | None:
    """Return what the estimator would say; the same program gets the same error each time."""
    if trace.memory_bytes is None or not errors:
        return None
    program = zlib.crc32(trace.workload.encode())
    guess, bound = errors[program % len(errors)]
    told_bytes = trace.memory_bytes * guess
    needs = sorted(1.0 / one for one, _ in errors)
    return MemoryEstimate(
        estimate_bytes=int(told_bytes),
        upper_bytes=int(trace.memory_bytes * bound),
        confidence=None,
        quantiles=tuple(
            (share, int(told_bytes * max(1.0, needs[min(len(needs) - 1, int(share * len(needs)))])))
            for share in SHARES
        ),
        smact=smact,
        source="simulated",
        profile_key=f"{program:08x}",
    )
