"""`rad status`: the GPUs of this node, who is on them, what was booked and what is really used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config import Config
from slurm_plugin.core.gpu import GpuReading
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.core.ledger_store import LedgerStore, boot_id
from slurm_plugin.monitor.attribution import JobFinder
from slurm_plugin.monitor.source import timely_telemetry
from slurm_plugin.monitor.window import JobUsage, read_job, read_window


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One job on one GPU.

    Attributes:
        job_id: Slurm's job id.
        user_id: The owner.
        kind: "shared" or "whole".
        booked_bytes: What it booked on this GPU.
        estimate_bytes: The best guess behind it, or None.
        used_bytes: What it holds now; None where nobody tells.
        peak_bytes: The most it held; None without a monitor.
        smact: Its share of SM activity; None without a monitor.
    """

    job_id: int
    user_id: int
    kind: str
    booked_bytes: int
    estimate_bytes: int | None
    used_bytes: int | None
    peak_bytes: int | None
    smact: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStatus:
    """One GPU.

    Attributes:
        index: The number that Slurm uses.
        uuid: Its UUID.
        name: Product name.
        state: "ok", "mig" or "unhealthy".
        usable_bytes: Memory that processes can have in all.
        used_bytes: Memory that processes hold.
        booked_bytes: What its jobs booked.
        strangers_bytes: Held by processes outside of jobs.
        smact: SM activity: over the window if `averaged`, else just now.
        smact_source: Who tells it.
        averaged: Whether the monitor's window is behind it.
        jobs: Who is on it.
    """

    index: int
    uuid: str
    name: str
    state: str
    usable_bytes: int
    used_bytes: int
    booked_bytes: int
    strangers_bytes: int
    smact: float | None
    smact_source: str | None
    averaged: bool
    jobs: tuple[JobStatus, ...]


def node_status(config: Config, clock: Clock) -> tuple[GpuStatus, ...]:
    """Return the state of this node's GPUs.

    Raises:
        DeviceError: There are none, or they do not answer.
    """
    run = Path(config.paths.run)
    window = read_window(run, now_s=clock.now_s())
    readings = timely_telemetry(config.telemetry, clock).read() if window is None else window
    ledger = LedgerStore(run, clock=clock, boot_id=boot_id()).read().ledger
    users = {held.job_id: held.user_id for held in ledger.reservations}
    owners = JobFinder().owners(readings, users=users)
    found = {held.job_id: read_job(run, held.job_id) for held in ledger.reservations}
    usages = {job_id: usage for job_id, usage in found.items() if usage is not None}
    return tuple(
        gpu_status(reading, ledger, owners, usages, averaged=window is not None) for reading in readings
    )


def gpu_status(
    reading: GpuReading,
    ledger: Ledger,
    owners: Mapping[int, int],
    usages: Mapping[int, JobUsage],
    *,
    averaged: bool,
) -> GpuStatus:
    """Return the state of one GPU."""
    jobs = ledger.on(reading.uuid)
    booked = {held.job_id for held in jobs}
    used = dict.fromkeys(booked, 0)
    strangers = 0
    for process in reading.processes:
        job_id = owners.get(process.pid)
        if job_id in used:
            used[job_id] += process.memory_bytes or 0
        else:
            strangers += process.memory_bytes or 0
    return GpuStatus(
        index=reading.index,
        uuid=reading.uuid,
        name=reading.name,
        state="unhealthy" if not reading.healthy else "mig" if reading.mig else "ok",
        usable_bytes=reading.usable_bytes,
        used_bytes=reading.memory_used_bytes,
        booked_bytes=sum(held.booked_bytes for held in jobs),
        strangers_bytes=strangers,
        smact=reading.smact,
        smact_source=reading.smact_source,
        averaged=averaged,
        jobs=tuple(
            JobStatus(
                job_id=held.job_id,
                user_id=held.user_id,
                kind=held.kind,
                booked_bytes=held.booked_bytes,
                estimate_bytes=held.estimate_bytes,
                used_bytes=used[held.job_id],
                peak_bytes=usages[held.job_id].peak_bytes if held.job_id in usages else None,
                smact=usages[held.job_id].mean_smact if held.job_id in usages else None,
            )
            for held in jobs
        ),
    )
