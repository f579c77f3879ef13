"""Compute each job's usage from readings, with sums that continue from reading to reading."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.window import JobUsage

BINS = 50
"""SMACT is counted in steps of 2 %, fine enough for a percentile and small enough to keep in a job's record."""
UNKNOWN = 0.4
"""Expected activity of a job of which nothing is known: half of smact_max, as the placement counts it."""
SPARE = 0.5
"""Jobs that share a GPU below this activity do not slow each other: 1.00 times at the median. Above, a job shows only
what the other jobs leave it: simulated with 0.8, P95 slowdowns came to 4.06 instead of 2.58
(docs/measurements/2026-11-activity.md)."""
MISLEADS = "nvml-utilisation"
"""The source that counts any kernel as a whole GPU."""

LEAST_SMACT = 0.002
"""Activity below which a GPU computes nothing."""
LEAST_CPU = 0.01
LEAST_CPU_S = 1.0
"""Share of a CPU, and CPU seconds at once, that a process may take that computes nothing: a notebook's heartbeat."""

LONGEST_STEP_S = 5.0
"""Longest time counted between two samples: the monitor was away, or the clock was set."""


def add_readings(
    usages: Mapping[int, JobUsage],
    readings: Iterable[GpuReading],
    owners: Mapping[int, int],
    *,
    energy_j: Mapping[str, float],
    now_s: float,
    expected: Mapping[int, float] = MappingProxyType({}),
    users: Mapping[int, int] = MappingProxyType({}),
    sliced: Collection[int] = (),
    cpu_s: Mapping[int, float] = MappingProxyType({}),
) -> dict[int, JobUsage]:
    """Return the records of all jobs that are on a GPU now, with these readings added.

    Args:
        usages: The records so far.
        readings: One reading of every GPU.
        owners: Job id of each GPU process that belongs to a job.
        energy_j: Energy of each GPU since the previous reading.
        now_s: Seconds since the epoch.
        expected: SM activity that each job is expected to have alone, by its id.
        users: User of each job, where known; a job of unknown user counts as another user's.
        sliced: Jobs that are known to run outside of MPS, and so by time slicing.
        cpu_s: CPU time of each GPU process so far, by its pid.
    """
    cpu_of: dict[int, float] = {}
    for pid, job_id in owners.items():
        cpu_of[job_id] = cpu_of.get(job_id, 0.0) + cpu_s.get(pid, 0.0)
    parts: dict[int, list[_Part]] = {}
    per_gpu = [(reading, _by_job(reading, owners)) for reading in readings]
    on_gpus = Counter(job_id for _, on_it in per_gpu for job_id in on_it)
    sliced = {*sliced, *(job_id for job_id, gpus in on_gpus.items() if gpus > 1)}  # these run outside of MPS
    for reading, on_it in per_gpu:
        weights = {job_id: max(0.01, expected.get(job_id, UNKNOWN)) for job_id in on_it}
        separable = _is_separable(reading, owners, sliced)
        for job_id, memory in on_it.items():
            share = weights[job_id] / sum(weights.values())
            parts.setdefault(job_id, []).append(
                _Part(
                    uuid=reading.uuid,
                    memory_bytes=None if None in memory else sum(n for n in memory if n is not None),
                    smact=None if reading.smact is None else reading.smact * share,
                    separable=separable,
                    alone=len(on_it) == 1,
                    gpu_smact=reading.smact,
                    energy_j=energy_j.get(reading.uuid, 0.0) / len(on_it),
                    shares=any(
                        users.get(other) != users.get(job_id, -1) for other in on_it if other != job_id
                    ),
                )
            )
    return {
        job_id: _with(
            usages.get(job_id) or JobUsage(job_id=job_id, first_s=now_s, last_s=now_s),
            own,
            now_s=now_s,
            cpu_s=cpu_of[job_id],
        )
        for job_id, own in parts.items()
    }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One job's part in one reading of one GPU."""

    uuid: str
    memory_bytes: int | None
    smact: float | None
    separable: bool
    alone: bool
    gpu_smact: float | None
    energy_j: float
    shares: bool


def _by_job(reading: GpuReading, owners: Mapping[int, int]) -> dict[int, list[int | None]]:
    """Return the usage of each job's processes on a GPU, in bytes; None for a process where it cannot be read."""
    found: dict[int, list[int | None]] = {}
    for process in reading.processes:
        if process.pid in owners:
            found.setdefault(owners[process.pid], []).append(process.memory_bytes)
    return found


def _is_separable(reading: GpuReading, owners: Mapping[int, int], sliced: Collection[int]) -> bool:
    """Return whether a GPU's activity shows what its jobs would do alone: a single job, or activity to spare.

    A time-sliced job leaves SMs idle that no other job can use meanwhile: with one, low activity means no spare SMs.
    """
    if reading.smact is None or reading.smact_source == MISLEADS:
        return False
    jobs = {owners.get(process.pid) for process in reading.processes}
    return None not in jobs and (len(jobs) == 1 or (reading.smact < SPARE and jobs.isdisjoint(sliced)))


def _with(usage: JobUsage, parts: Sequence[_Part], *, now_s: float, cpu_s: float) -> JobUsage:
    peaks = [part.memory_bytes for part in parts if part.memory_bytes is not None]
    peak = max([*peaks, *([] if usage.peak_bytes is None else [usage.peak_bytes])], default=None)
    shares = [part.smact for part in parts if part.smact is not None]
    passed_s = min(max(0.0, now_s - usage.last_s), LONGEST_STEP_S)
    unseen_s = now_s - usage.last_s - passed_s
    if usage.computed_s is not None and unseen_s:  # no time in which it was seen to compute nothing
        usage = dataclasses.replace(usage, computed_s=usage.computed_s + unseen_s)
    counts = list(usage.smact_counts or (0,) * BINS)
    mean, p95 = usage.mean_smact, usage.p95_smact
    if shares:
        share = sum(shares) / len(shares)
        counts[min(BINS - 1, int(share * BINS))] += 1
        n = sum(counts)
        mean = ((mean or 0.0) * (n - 1) + share) / n
        p95 = _percentile(counts, 0.95)
    own_smact, own_samples = usage.own_smact, usage.own_samples
    if shares and all(part.separable for part in parts):
        own_samples += 1
        own_smact = ((own_smact or 0.0) * (own_samples - 1) + sum(shares) / len(shares)) / own_samples
    if _computes(usage, parts, now_s=now_s, cpu_s=cpu_s):
        usage = dataclasses.replace(usage, computed_s=now_s, computed_cpu_s=cpu_s)
    return dataclasses.replace(
        usage,
        last_s=now_s,
        peak_bytes=peak,
        mean_smact=mean,
        p95_smact=p95,
        own_smact=own_smact,
        own_samples=own_samples,
        energy_j=(usage.energy_j or 0.0) + sum(part.energy_j for part in parts),
        gpus=tuple(sorted({*usage.gpus, *(part.uuid for part in parts)})),
        samples=usage.samples + 1,
        shared_s=usage.shared_s + (passed_s if any(part.shares for part in parts) else 0.0),
        steady_samples=usage.steady_samples + 1 if peak == usage.peak_bytes else 0,
        smact_counts=tuple(counts) if shares else usage.smact_counts,
    )


def _computes(usage: JobUsage, parts: Sequence[_Part], *, now_s: float, cpu_s: float) -> bool:
    """Return whether a job may have computed on a GPU since it last did.

    On a GPU of its own the GPU's activity shows it. On a shared GPU no source reports activity per process; a process
    that launches kernels takes CPU time, and one that does not take any launches none.
    """
    if usage.computed_s is None or cpu_s < usage.computed_cpu_s:  # new, or one of its processes has ended
        return True
    works = cpu_s - usage.computed_cpu_s > LEAST_CPU_S + LEAST_CPU * (now_s - usage.computed_s)
    return any(
        works if part.gpu_smact is None else part.gpu_smact >= LEAST_SMACT and (part.alone or works)
        for part in parts
    )


def _percentile(counts: Sequence[int], share: float) -> float:
    """Return the upper edge of the bin that holds this share of the samples."""
    wanted, seen = share * sum(counts), 0
    for number, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return (number + 1) / BINS
    return 1.0
