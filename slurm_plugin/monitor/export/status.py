"""State of a node's GPUs as shown to people: the jobs on them, what was booked and what is used.

One record, made only here. `rad status` shows that of its own node, rad-monitor serves it at /status (web.py) and
`rad top` reads it from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.window import JobUsage

VERSION = 1
"""Version of the text; it changes when a name changes its meaning. Names may be added at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One job on one GPU.

    Attributes:
        job_id: Slurm's job id.
        user_id: The job's user.
        kind: "shared" or "whole".
        booked_bytes: What it booked on this GPU.
        estimate_bytes: Estimated memory of the job, or None.
        used_bytes: Its usage now; None where no source reports it.
        peak_bytes: Its peak usage; None without a monitor.
        smact: Its share of SM activity; None without a monitor.
        idle_s: How long an idle job has computed nothing; None for any other job.
    """

    job_id: int
    user_id: int
    kind: str
    booked_bytes: int
    estimate_bytes: int | None
    used_bytes: int | None
    peak_bytes: int | None
    smact: float | None
    idle_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStatus:
    """One GPU.

    Attributes:
        index: The number that Slurm uses.
        uuid: Its UUID.
        name: Product name.
        state: "ok", "mig" or "unhealthy".
        usable_bytes: Memory that all processes together can use.
        used_bytes: Memory that processes use.
        booked_bytes: Memory booked by its jobs.
        unmanaged_bytes: Used by processes outside of jobs.
        smact: SM activity: over the window if `averaged`, else just now.
        smact_source: Its source.
        averaged: Whether it comes from the monitor's window.
        jobs: The jobs on it.
    """

    index: int
    uuid: str
    name: str
    state: str
    usable_bytes: int
    used_bytes: int
    booked_bytes: int
    unmanaged_bytes: int
    smact: float | None
    smact_source: str | None
    averaged: bool
    jobs: tuple[JobStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something that hooks or the guard did to a job: a recovery, a requeue, ...

    Attributes:
        time_s: When, seconds since the epoch.
        job_id: The job.
        event: Its kind, as in logs/events.py. The sentence that explains it is left out: it may quote a job's output.
    """

    time_s: float
    job_id: int
    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One node.

    Attributes:
        host: Its name, from the kernel.
        time_s: When its GPUs were read, seconds since the epoch; 0 if never.
        gpus: Its GPUs.
        happened: Recent actions on its jobs, oldest first.
    """

    host: str
    time_s: float
    gpus: tuple[GpuStatus, ...]
    happened: tuple[Happened, ...] = ()


def gpu_status(
    reading: GpuReading,
    ledger: Ledger,
    owners: Mapping[int, int],
    usages: Mapping[int, JobUsage],
    *,
    idle: Mapping[int, float],
    averaged: bool,
) -> GpuStatus:
    """Return the state of one GPU.

    Args:
        reading: Its last reading.
        ledger: The allocations on the node.
        owners: Job id of each GPU process that belongs to a job.
        usages: What the monitor knows of each job.
        idle: Seconds since each job that is idle computed anything.
        averaged: Whether the reading's activity is the window's.
    """
    jobs = ledger.on(reading.uuid)
    used = dict.fromkeys((allocation.job_id for allocation in jobs), 0)
    unmanaged = 0
    for process in reading.processes:
        job_id = owners.get(process.pid)
        if job_id in used:
            used[job_id] += process.memory_bytes or 0
        else:
            unmanaged += process.memory_bytes or 0
    return GpuStatus(
        index=reading.index,
        uuid=reading.uuid,
        name=reading.name,
        state="unhealthy" if not reading.healthy else "mig" if reading.mig else "ok",
        usable_bytes=reading.usable_bytes,
        used_bytes=reading.memory_used_bytes,
        booked_bytes=sum(allocation.booked_bytes for allocation in jobs),
        unmanaged_bytes=unmanaged,
        smact=reading.smact,
        smact_source=reading.smact_source,
        averaged=averaged,
        jobs=tuple(
            JobStatus(
                job_id=allocation.job_id,
                user_id=allocation.user_id,
                kind=allocation.kind,
                booked_bytes=allocation.booked_bytes,
                estimate_bytes=allocation.estimate_bytes,
                used_bytes=used[allocation.job_id],
                peak_bytes=usages[allocation.job_id].peak_bytes if allocation.job_id in usages else None,
                smact=usages[allocation.job_id].mean_smact if allocation.job_id in usages else None,
                idle_s=idle.get(allocation.job_id),
            )
            for allocation in jobs
        ),
    )
