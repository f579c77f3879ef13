"""From a job's demand to its GPUs: read, decide and reserve under the node's lock."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from prolog.readings import read_gpus
from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.config import Config, PartitionConfig
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.gpu import GpuReading
from slurm_plugin.core.job_folder import JobFolder
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.core.ledger_store import LedgerStore
from slurm_plugin.core.placement import Pin, choose_gpu, memory_use
from slurm_plugin.core.process import PROC
from slurm_plugin.core.records import Demand, Placement, Reservation
from slurm_plugin.core.units import from_mib
from slurm_plugin.monitor.attribution import JobFinder
from slurm_plugin.slurm.hook_env import HookJob
from slurm_plugin.slurm.processes import TaskTrace, living_jobs, placed_tasks

if TYPE_CHECKING:
    from slurm_plugin.slurm.control import SlurmControl

YOUNG_S = 60.0
"""A job this young may not have a slurmstepd yet: other prologs, container images and node boots take their time."""

LOCK_S = 3.0
"""Of the hook's five seconds; a decision takes milliseconds, so only a stuck hook holds the lock this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What was decided.

    Attributes:
        placement: The GPUs, or why there are none.
        reservation: What the ledger holds for the job now; None if it holds nothing.
        reading: The first GPU as it was read; None if the job was put back.
    """

    placement: Placement
    reservation: Reservation | None = None
    reading: GpuReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What the stages of a hook share on this node.

    Attributes:
        config: rad.toml.
        clock: Time.
        store: The ledger.
        slurm: Slurm, as the last resort.
        slurm_conf: SLURM_CONF of this node's slurmd, where known.
        confined: Whether cgroups let a job reach only the GPUs of its seats.
        proc: Where /proc is.
    """

    config: Config
    clock: Clock
    store: LedgerStore
    slurm: Callable[[], SlurmControl]
    slurm_conf: str | None
    confined: bool
    proc: Path = PROC

    @property
    def run(self) -> Path:
        """Return the folder of the node's state."""
        return Path(self.config.paths.run)

    def pin(self, settings: PartitionConfig) -> Pin:
        """Return whether a job of this partition must stay on the GPUs of its seats."""
        if settings.pin == "auto":
            return "slurm" if self.confined else "bound"
        return settings.pin


def place(node: Node, job: HookJob, demand: Demand, settings: PartitionConfig) -> Placed:
    """Choose and reserve the GPUs of a job.

    Before a job is put back, Slurm is asked whether the holders of what it lacks are really there.

    Raises:
        RadError: GPUs or ledger cannot be read or written; nothing is reserved.
        OSError: The job's folder cannot be made; nothing is reserved.
    """
    readings = read_gpus(node.config, node.clock)
    placed = _place_once(node, job, demand, settings, readings, gone=_gone_jobs(node, job, urgent=False))
    if placed.placement.put_back:
        gone = _gone_jobs(node, job, urgent=True)
        if gone:
            placed = _place_once(node, job, demand, settings, readings, gone=gone)
    return placed


def _place_once(
    node: Node,
    job: HookJob,
    demand: Demand,
    settings: PartitionConfig,
    readings: tuple[GpuReading, ...],
    *,
    gone: Collection[tuple[int, int]],
) -> Placed:
    with node.store.locked(Deadline(node.clock, LOCK_S)):
        found = node.store.read()
        before = _rebuilt(node, found.ledger, readings) if found.rebuilt else found.ledger
        ledger = _without(before, gone)
        now_s, window_s = node.clock.now_s(), float(node.config.telemetry.window_s)
        users = {held.job_id: held.user_id for held in ledger.reservations}
        owner = JobFinder(node.proc).owners(readings, users=users)
        placement = choose_gpu(
            readings,
            ledger,
            demand,
            settings,
            pin=node.pin(settings),
            now_s=now_s,
            window_s=window_s,
            owners=owner,
        )
        if node.config.mode == "observe":
            return Placed(placement=placement)
        if not placement.gpus:
            node.store.write(ledger.release(job.job_id, restart=job.restart))
            return Placed(placement=placement)
        chosen = {reading.uuid: reading for reading in readings if reading.uuid in placement.gpus}
        reservation = replace(
            _reservation(demand, settings, placement, chosen, now_s), partition=job.partition
        )
        room_bytes = {
            uuid: reading.usable_bytes - memory_use(reading, ledger.on(uuid), owner).strangers_bytes
            for uuid, reading in chosen.items()
        }
        after = ledger.reserve(reservation, room_bytes)
        folder = JobFolder(node.run, job.job_id)
        folder.create(user_id=job.user_id, group_id=job.group_id)
        node.store.write_copy(reservation)
        node.store.write(after)
    return Placed(placement=placement, reservation=reservation, reading=chosen[placement.gpus[0]])


def _reservation(
    demand: Demand,
    settings: PartitionConfig,
    placement: Placement,
    chosen: dict[str, GpuReading],
    now_s: float,
) -> Reservation:
    alone = demand.kind == "whole" or settings.policy == "exclusive"
    usable_bytes = min(reading.usable_bytes for reading in chosen.values())
    need_bytes = from_mib(settings.free_min_mib) if demand.booked_bytes is None else demand.booked_bytes
    return Reservation(
        job_id=demand.job_id,
        user_id=demand.user_id,
        kind="whole" if alone else "shared",
        gpus=placement.gpus,
        seats=demand.seats,
        booked_bytes=usable_bytes if alone else need_bytes,
        created_s=now_s,
        estimate_bytes=demand.estimate_bytes,
        profile_key=demand.profile_key,
        restart=demand.restart,
    )


def _gone_jobs(node: Node, job: HookJob, *, urgent: bool) -> frozenset[tuple[int, int]]:
    """Return job id and restart count of each reservation whose job is over although no Epilog released it.

    A job without a slurmstepd may still be there (an salloc that has started nothing), so Slurm has the last word;
    it is asked at most once in YOUNG_S, and without the lock.
    """
    held = node.store.read().ledger.reservations
    old = [one for one in held if node.clock.now_s() - one.created_s > YOUNG_S and one.job_id != job.job_id]
    living = living_jobs(slurm_conf=node.slurm_conf, proc=node.proc) if old else frozenset()
    doubtful = [one for one in old if one.job_id not in living]
    if not doubtful or not (node.store.may_ask(YOUNG_S) or urgent):
        return frozenset()
    try:
        views = node.slurm().jobs(node=job.node or None, states=_ON_NODE)
    except SlurmError:
        return frozenset()
    present = {view.job_id for view in views}
    return frozenset((one.job_id, one.restart) for one in doubtful if one.job_id not in present)


_ON_NODE = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT")


def _without(ledger: Ledger, gone: Collection[tuple[int, int]]) -> Ledger:
    return replace(
        ledger,
        reservations=tuple(one for one in ledger.reservations if (one.job_id, one.restart) not in gone),
    )


def _rebuilt(node: Node, ledger: Ledger, readings: tuple[GpuReading, ...]) -> Ledger:
    """Return a lost ledger, from the jobs' own copies and from what the tasks that run now say of theirs."""
    usable = {reading.uuid: reading.usable_bytes for reading in readings}
    found = {held.job_id: held for held in ledger.reservations}
    for trace in placed_tasks(slurm_conf=node.slurm_conf, proc=node.proc):
        if trace.job_id not in found and all(uuid in usable for uuid in trace.gpus):
            found[trace.job_id] = _from_trace(trace, usable, node.clock.now_s())
    return Ledger(reservations=tuple(found.values()))


def _from_trace(trace: TaskTrace, usable: dict[str, int], now_s: float) -> Reservation:
    """Return the reservation of a running task; what it does not tell is taken for a whole GPU."""
    booked, seats = trace.environment.get("RAD_BOOKED_MIB", ""), trace.environment.get("RAD_SEATS", "")
    restart = trace.environment.get("RAD_RESTART", "")
    shared = trace.environment.get("RAD_KIND") == "shared" and booked.isdigit()
    return Reservation(
        job_id=trace.job_id,
        user_id=trace.user_id,
        kind="shared" if shared else "whole",
        gpus=trace.gpus,
        seats=tuple(int(seat) for seat in seats.split(",") if seat.isdigit()),
        booked_bytes=from_mib(int(booked)) if shared else min(usable[uuid] for uuid in trace.gpus),
        created_s=now_s,
        restart=int(restart) if restart.isdigit() else 0,
    )
