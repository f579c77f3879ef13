"""Violations on the GPUs of a node in one sample: a pure function of the sample and the configuration.

Only jobs of partitions named in rad.toml are judged, by the processes that certainly belong to them. A process that
belongs to no job is only reported. What a well-behaved job cannot avoid never counts: a process older than the job's
allocation, memory that the driver does not report, RAD's MPS servers, a difference below TOLERANCE_BYTES.
On an H200 (driver 580.159), NVML showed 1,940 MiB for a client stopped by a limit of 2,048 MiB, showed an allocation
0.6 ms after it, and counted memory opened by IPC only with its exporter. So a client stopped by its limit never looks
like one that exceeded it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from slurm_plugin.core.config.load import Config
from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.guard.overruns import TOLERANCE_BYTES, overruns
from slurm_plugin.guard.sample import JobUsageOnGpu, Sample
from slurm_plugin.guard.unmanaged import unmanaged_on
from slurm_plugin.guard.violation import Violation
from slurm_plugin.monitor.attribution import Traced

NOTICE_S = 60.0
"""Time from the warning of an idle job to its end."""

_SLACK_S = 5.0
"""Allowed clock difference between an allocation and the first process of its job."""


def violations(sample: Sample, config: Config) -> tuple[Violation, ...]:
    """Return all violations in one sample.

    Args:
        sample: The sample.
        config: rad.toml.
    """
    judged = [reading for reading in sample.readings if reading.healthy and not reading.mig]
    return tuple(one for reading in judged for one in _on_gpu(reading, sample, config))


def _on_gpu(reading: GpuReading, sample: Sample, config: Config) -> Iterator[Violation]:
    usages, unmanaged = _attributed(reading, sample, config)
    yield from overruns(reading, usages, sample)
    for usage in usages:
        yield from _elsewhere(usage, sample)
        yield from _idle(usage, sample)
    yield from unmanaged_on(reading, sample.ledger, unmanaged)


def _attributed(
    reading: GpuReading, sample: Sample, config: Config
) -> tuple[list[JobUsageOnGpu], list[tuple[GpuProcess, Traced]]]:
    """Return what each judged job uses on a GPU, and the GPU's processes without an allocation."""
    rows: dict[int, list[tuple[GpuProcess, Process]]] = {}
    unmanaged: list[tuple[GpuProcess, Traced]] = []
    for row in reading.processes:
        one = sample.traced.get(row.pid)
        if one is None or one.process in sample.mine.servers:
            continue
        allocation = None if one.job_id is None else sample.ledger.of_job(one.job_id)
        if allocation is None or not (one.certain or reading.uuid in allocation.gpus):
            unmanaged.append((row, one))
        elif (
            one.certain
            and sample.ages_s.get(one.process, 0.0) <= sample.now_s - allocation.created_s + _SLACK_S
        ):
            rows.setdefault(allocation.job_id, []).append((row, one.process))
    usages = []
    for allocation in sample.ledger.allocations:
        settings = config.partitions.get(allocation.partition) if allocation.managed else None
        if allocation.job_id in rows and settings is not None:
            usages.append(
                JobUsageOnGpu(
                    reading=reading,
                    allocation=allocation,
                    settings=settings,
                    rows=tuple(rows[allocation.job_id]),
                )
            )
    return usages, unmanaged


def _idle(usage: JobUsageOnGpu, sample: Sample) -> Iterator[Violation]:
    """Find a job on its GPU that is idle, where rad.toml has something done to it; it is warned before it is stopped.

    A job that is ending takes no more notes in Slurm.
    """
    action, idle_s = usage.settings.idle_action, sample.idle.get(usage.allocation.job_id)
    if action == "none" or idle_s is None or usage.reading.uuid not in usage.allocation.gpus:
        return
    after_s = usage.settings.idle_after_s
    if action == "warn" or idle_s >= after_s + min(after_s, NOTICE_S):
        yield replace(usage.violation("idle", 0, action), idle_s=idle_s)
    else:
        then = "; it is stopped and requeued soon" if action == "requeue" else "; it is ended soon"
        yield replace(usage.violation("idle", 0, "warn"), idle_s=idle_s, then=f"{then} unless it computes")


def _elsewhere(usage: JobUsageOnGpu, sample: Sample) -> Iterator[Violation]:
    """Find a job on a GPU not allocated to it, or on its GPU without the MPS server it was given."""
    others = [one for one in sample.ledger.on(usage.reading.uuid) if one.job_id != usage.allocation.job_id]
    if usage.reading.uuid not in usage.allocation.gpus and (others or usage.total_bytes > TOLERANCE_BYTES):
        yield usage.violation("foreign-gpu", 0, usage.settings.on_overrun)
    past = tuple(row for row in usage.rows if row[0].mps is False)
    if past and usage.key in sample.mine.clients:
        yield usage.violation(
            "outside-mps", usage.allocation.limit_bytes, usage.settings.on_outside_mps, past
        )
