"""`rad status`: the GPUs of this node, their jobs, bookings and usage."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.ledger.store import LedgerStore, boot_id
from slurm_plugin.monitor.attribution import JobFinder
from slurm_plugin.monitor.export.status import GpuStatus, gpu_status
from slurm_plugin.monitor.gpus.source import timely_telemetry
from slurm_plugin.monitor.idle import idle_jobs
from slurm_plugin.monitor.window import read_job, read_window


def node_status(config: Config, clock: Clock) -> tuple[GpuStatus, ...]:
    """Return the state of this node's GPUs.

    Args:
        config: rad.toml.
        clock: Time.

    Raises:
        DeviceError: There are no GPUs, or they do not answer; or the caller may not read the node's allocations.
    """
    run = Path(config.paths.run)
    ledger_path = run / "ledger"
    if ledger_path.exists() and not os.access(ledger_path, os.R_OK):
        raise DeviceError(
            f"{ledger_path}: only root may read this node's allocations; rad top shows them to all users"
        )
    window = read_window(run, now_s=clock.now_s())
    try:
        readings = timely_telemetry(config.telemetry, clock).read() if window is None else window
    except DeviceError as exc:
        raise DeviceError(f"{exc}; rad status is for a GPU node, and rad top shows all of them") from exc
    ledger = LedgerStore(run, clock=clock, boot_id=boot_id()).read().ledger
    users = {allocation.job_id: allocation.user_id for allocation in ledger.allocations}
    owners = JobFinder().owners(readings, users=users)
    found = {allocation.job_id: read_job(run, allocation.job_id) for allocation in ledger.allocations}
    usages = {job_id: usage for job_id, usage in found.items() if usage is not None}
    idle = idle_jobs(ledger, usages, config)
    return tuple(
        gpu_status(reading, ledger, owners, usages, idle=idle, averaged=window is not None)
        for reading in readings
    )
