"""Find jobs that use more GPU memory than they may, and choose which one to stop to free memory for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_plugin.core.placement.candidate import memory_use
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.units import MIB
from slurm_plugin.guard.sample import JobUsageOnGpu, Sample
from slurm_plugin.guard.violation import Violation

TOLERANCE_BYTES = 512 * MIB
"""Usage allowed above the booking: one more CUDA context (532 MiB on an H200) is no overrun."""


def overruns(reading: GpuReading, usages: Sequence[JobUsageOnGpu], sample: Sample) -> Iterator[Violation]:
    """Find jobs above their booking or their limit, and decide which of them are stopped.

    | usage         | the job                                            | violation | response                  |
    |---------------|----------------------------------------------------|-----------|---------------------------|
    | above limit   | bypassed MPS, or dropped its own limit             | memory    | `on_overrun`              |
    | above limit   | is ending, or is chosen to free memory             | memory    | `on_overrun`              |
    | above limit   | any other                                          | memory    | warn                      |
    | above booking | is ending, or is chosen to free memory             | overrun   | requeue: it did no wrong  |
    | above booking | any other                                          | none      |                           |
    | within it     | any                                                | none      |                           |

    Where `on_overrun` is "warn", every response is a warning. `_chosen_to_free_memory` chooses at most one job. Memory
    of jobs that are ending counts as free, both what they use and what they booked.

    Args:
        reading: The GPU.
        usages: Usage of the jobs on it.
        sample: The whole sample.
    """
    jobs = [
        _Usage.of(usage, sample)
        for usage in usages
        if usage.allocation.kind == "shared" and reading.uuid in usage.allocation.gpus
    ]
    chosen = _chosen_to_free_memory(jobs, reading, sample)
    for job in jobs:
        stopped = job.bypassed_mps or job.ending or job is chosen
        violation = _violation(job, stopped=stopped)
        if violation is not None:
            yield violation


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usage:
    """Usage of a shared job on one of its GPUs, compared with its booking and its limit.

    Attributes:
        usage: The job and its processes.
        level: The highest of the two that it exceeds; a limit only by more than the tolerance.
        bypassed_mps: It exceeds a limit that MPS enforces, which is possible only outside MPS.
        ending: It was stopped a moment ago, or it is stopped now because it bypassed MPS.
    """

    usage: JobUsageOnGpu
    level: Literal["within booking", "above booking", "above limit"]
    bypassed_mps: bool
    ending: bool

    @classmethod
    def of(cls, usage: JobUsageOnGpu, sample: Sample) -> _Usage:
        """Compare a job's usage with what it may use."""
        bypassed_mps = False
        level: Literal["within booking", "above booking", "above limit"] = "within booking"
        if usage.total_bytes > usage.allocation.limit_bytes + TOLERANCE_BYTES:
            level, bypassed_mps = "above limit", usage.key in sample.mine.capped
        elif usage.excess_bytes > 0:
            level = "above booking"
        ending = usage.run in sample.leaving or (bypassed_mps and usage.settings.on_overrun != "warn")
        return cls(usage=usage, level=level, bypassed_mps=bypassed_mps, ending=ending)

    @property
    def above_estimate_bytes(self) -> int:
        """Return by how much it exceeds its estimate, or its booking if that is smaller or alone known."""
        allocation = self.usage.allocation
        expected_bytes = (
            allocation.booked_bytes if allocation.estimate_bytes is None else allocation.estimate_bytes
        )
        return self.usage.total_bytes - min(expected_bytes, allocation.booked_bytes)


def _violation(job: _Usage, *, stopped: bool) -> Violation | None:
    """Return the row of the decision table that applies to a job."""
    allocation, on_overrun = job.usage.allocation, job.usage.settings.on_overrun
    if job.level == "above limit":
        return job.usage.violation("memory", allocation.limit_bytes, on_overrun if stopped else "warn")
    if job.level == "above booking" and stopped:
        return job.usage.violation(
            "overrun", allocation.booked_bytes, "warn" if on_overrun == "warn" else "requeue"
        )
    return None


def _chosen_to_free_memory(jobs: Sequence[_Usage], reading: GpuReading, sample: Sample) -> _Usage | None:
    """Return the one job to stop so that other jobs get the memory that they booked; None if there is no need.

    Any job above its booking may be chosen if other jobs on the GPU could not get what they booked. If they can, but a
    job that Slurm has started waits for its booking, only a job above its limit may be. The one furthest above its own
    estimate is chosen; one that is only warned about is chosen if there is no other, and frees nothing.
    """
    spare_bytes = _spare_bytes(jobs, reading, sample)
    if spare_bytes < 0:
        levels: tuple[str, ...] = ("above booking", "above limit")
    elif spare_bytes < sample.lacking_bytes.get(reading.uuid, 0):
        levels = ("above limit",)
    else:
        return None
    candidates = [
        job
        for job in _above_booking_by_user(jobs)
        if job.level in levels and not job.bypassed_mps and not job.ending
    ]
    return max(candidates, key=_stop_order, default=None)


def _stop_order(job: _Usage) -> tuple[bool, int]:
    return job.usage.settings.on_overrun != "warn", job.above_estimate_bytes


def _spare_bytes(jobs: Sequence[_Usage], reading: GpuReading, sample: Sample) -> int:
    """Return the memory left once ending jobs are gone and all others have what they booked; below 0 if too little."""
    ended = {*sample.leaving, *(job.usage.run for job in jobs if job.ending)}
    staying = [
        allocation
        for allocation in sample.ledger.on(reading.uuid)
        if (allocation.job_id, allocation.restart) not in ended
    ]
    free_bytes = reading.free_bytes + sum(job.usage.total_bytes for job in jobs if job.ending)
    return free_bytes - memory_use(reading, staying, sample.owners).untouched_bytes


def _above_booking_by_user(jobs: Sequence[_Usage]) -> list[_Usage]:
    """Return jobs above their booking, of users whose jobs together exceed their bookings by more than the tolerance.

    The tolerance applies once per user and GPU, not once for each of many small jobs.
    """
    excess_bytes: Counter[int] = Counter()
    for job in jobs:
        excess_bytes[job.usage.allocation.user_id] += job.usage.excess_bytes
    return [
        job
        for job in jobs
        if job.level != "within booking" and excess_bytes[job.usage.allocation.user_id] > TOLERANCE_BYTES
    ]
