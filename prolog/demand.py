"""What a job may use: its signed booking, or, where there is none, what Slurm says that it asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_plugin.core.config import Config, PartitionConfig
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.core.gres import count_of, is_mig, parse_gres
from slurm_plugin.core.records import Booking, Demand
from slurm_plugin.core.wire import read_key, read_stamp
from slurm_plugin.slurm.hook_env import HookJob

if TYPE_CHECKING:
    from slurm_plugin.slurm.control import SlurmControl


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A job's demand and how we know it.

    Attributes:
        demand: What the placement is asked for; None if the job is to be left alone (MIG).
        source: "stamp", "slurm" or "assumed", for the log.
        recoveries: How often the job was requeued after running out of memory.
    """

    demand: Demand | None
    source: str
    recoveries: int = 0


def wanted_by(
    job: HookJob, config: Config, settings: PartitionConfig, slurm: Callable[[], SlurmControl]
) -> Wanted:
    """Return what a job with GPUs may use.

    Slurm is asked only about a job without a valid stamp; if it does not answer, the job gets whole GPUs, because
    what is unknown must not share.
    """
    booking = signed_booking(job, config)
    if booking is not None:
        return Wanted(demand=_from_booking(job, booking), source="stamp", recoveries=booking.recoveries)
    try:
        view = slurm().job(job.job_id)
    except SlurmError:
        view = None
    if view is None:
        return Wanted(demand=_whole(job), source="assumed")
    items = parse_gres(view.gres)
    if any(is_mig(item) for item in items):
        return Wanted(demand=None, source="slurm")
    shards = count_of(items, "shard")
    if shards and not count_of(items, "gpu") and shards < settings.shards:
        return Wanted(demand=_shared(job, shards * settings.shard_bytes), source="slurm")
    if shards and not settings.shards:
        return Wanted(demand=_shared(job, None), source="slurm")
    return Wanted(demand=_whole(job), source="slurm")


def signed_booking(job: HookJob, config: Config) -> Booking | None:
    """Return the booking in a job's comment if the cluster's key vouches for it."""
    try:
        key = read_key(Path(config.paths.key))
    except ConfigError:
        return None
    return read_stamp(job.comment, user_id=job.user_id, key=key)


def _from_booking(job: HookJob, booking: Booking) -> Demand:
    demand = _whole(job) if booking.kind == "whole" else _shared(job, booking.memory_bytes)
    return replace(demand, estimate_bytes=booking.estimate_bytes, profile_key=booking.profile_key)


def _whole(job: HookJob) -> Demand:
    return Demand(
        job_id=job.job_id,
        user_id=job.user_id,
        kind="whole",
        gpus=len(job.seats),
        booked_bytes=None,
        seats=job.seats,
        restart=job.restart,
    )


def _shared(job: HookJob, booked_bytes: int | None) -> Demand:
    return Demand(
        job_id=job.job_id,
        user_id=job.user_id,
        kind="shared",
        gpus=1,
        booked_bytes=booked_bytes,
        seats=job.seats,
        restart=job.restart,
    )
