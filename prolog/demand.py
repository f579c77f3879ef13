"""Determine what a job may use: its signed booking or, if there is none, its request according to Slurm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_plugin.core.booking.gres_text import count_of, is_mig, parse_gres
from slurm_plugin.core.booking.verification import mismatch_in
from slurm_plugin.core.comments.signed_comment import read_key, read_signed_booking
from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.core.errors import ConfigError, SlurmError
from slurm_plugin.core.records.node import Demand
from slurm_plugin.core.records.submission import Booking, BookingKind, GresItem, RequestedTasks
from slurm_plugin.slurm.node.hook_env import HookJob

if TYPE_CHECKING:
    from slurm_plugin.slurm.commands import SlurmCommands


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedDemand:
    """A job's demand and its source.

    Attributes:
        demand: The input of the placement; None if the job passes through unchanged (MIG).
        source: "booking", "slurm" or "assumed", for the log.
        mismatch: Why a verified booking did not count; "" if it did, or if there was none.
        shards: Shards that Slurm gave according to the booking, for TaskProlog to compare; None if Slurm was queried.
        by_task: The tasks that its steps are to have; None if Slurm has the user's number.
    """

    demand: Demand | None
    source: str
    mismatch: str = ""
    shards: int | None = None
    by_task: RequestedTasks | None = None


def wanted_by(
    job: HookJob, config: Config, settings: PartitionConfig, slurm: Callable[[], SlurmCommands]
) -> SourcedDemand:
    """Return what a job with GPUs may use.

    An ordinary job costs slurmctld nothing: its booking is verified here, and agrees with the Prolog's environment.
    For any other job, Slurm is queried for what it gave, and that counts. If Slurm does not answer, the job gets whole
    GPUs, because an unknown demand must not share.

    Args:
        job: The job, as slurmd passes it to its hooks.
        config: rad.toml.
        settings: The partition's settings.
        slurm: Opens Slurm; called only if it must be queried.
    """
    booking = signed_booking(job, config)
    if booking is None:
        return _as_given(job, settings, slurm)
    mismatch = mismatch_in(booking, partition=job.partition, gpu_indices=len(job.gpu_indices))
    if mismatch is None:
        size = _whole(job) if booking.kind == "whole" else _shared(job, booking.memory_bytes, booking.gpus)
        wanted = SourcedDemand(demand=size, source="booking", shards=booking.shards)
    else:
        wanted = replace(_as_given(job, settings, slurm, _parts(booking, job)), mismatch=mismatch)
    if wanted.demand is None:
        return wanted
    demand = replace(
        wanted.demand,
        cap_bytes=booking.cap_bytes if wanted.source == "booking" else None,
        estimate_bytes=booking.estimate_bytes,
        profile_key=booking.profile_key,
        smact=booking.smact,
        processes=booking.processes,
        own_server=booking.own_server,
    )
    return replace(wanted, demand=demand, by_task=booking.by_task)


def _parts(booking: Booking, job: HookJob) -> int:
    """Return over how many GPUs a job's shards are split equally; otherwise 1, as they are one GPU's."""
    return booking.gpus if booking.kind == "shared" and booking.gpus == len(job.gpu_indices) else 1


def _as_given(
    job: HookJob, settings: PartitionConfig, slurm: Callable[[], SlurmCommands], gpus: int = 1
) -> SourcedDemand:
    """Return what a job may use according to Slurm; `gpus` is how many it shares."""
    try:
        items = parse_gres(slurm().given(job.job_id))
    except SlurmError:
        items = ()
    if any(is_mig(item) for item in items):
        return SourcedDemand(demand=None, source="slurm")
    here = _of_this_node(job, settings, slurm) if settings.gpus else settings
    return SourcedDemand(demand=_given(job, items, here, gpus), source="slurm" if items else "assumed")


def _of_this_node(
    job: HookJob, settings: PartitionConfig, slurm: Callable[[], SlurmCommands]
) -> PartitionConfig:
    """Return a partition's settings for the one type of GPU on this node; unchanged if the type is not known."""
    try:
        view = slurm().node(job.node)
    except SlurmError:
        return settings
    types = {item.type for item in parse_gres("" if view is None else view.gres) if item.name == "gpu"}
    return settings.of_type(types.pop()) if len(types) == 1 else settings


def _given(job: HookJob, items: tuple[GresItem, ...], settings: PartitionConfig, gpus: int) -> Demand:
    """Return a job's demand from what Slurm gave it.

    Shards of one GPU that Slurm split over several still count as one GPU's. A job of several GPUs has equal parts.
    """
    shards = count_of(items, "shard")
    if not shards or count_of(items, "gpu"):
        return _whole(job)
    if not settings.shards:
        return _shared(job, None)
    each, rest = divmod(shards, gpus)
    if each >= settings.shards or rest:
        return _whole(job)
    return _shared(job, each * settings.shard_bytes, gpus)


def signed_booking(job: HookJob, config: Config) -> Booking | None:
    """Return the booking in a job's comment if its signature with the cluster's key is valid.

    Args:
        job: The job, as slurmd passes it to its hooks.
        config: rad.toml.
    """
    try:
        key = read_key(Path(config.paths.key))
    except ConfigError:
        return None
    return read_signed_booking(job.comment, user_id=job.user_id, key=key)


def _whole(job: HookJob) -> Demand:
    return _demand(job, "whole", gpus=len(job.gpu_indices), booked_bytes=None)


def _shared(job: HookJob, booked_bytes: int | None, gpus: int = 1) -> Demand:
    return _demand(job, "shared", gpus=gpus, booked_bytes=booked_bytes)


def _demand(job: HookJob, kind: BookingKind, *, gpus: int, booked_bytes: int | None) -> Demand:
    return Demand(
        job_id=job.job_id,
        user_id=job.user_id,
        kind=kind,
        gpus=gpus,
        booked_bytes=booked_bytes,
        gpu_indices=job.gpu_indices,
        restart=job.restart,
    )
