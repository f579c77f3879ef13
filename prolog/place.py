"""Choose a job's GPUs and record their allocation: read the ledger, decide and write under the node's lock.

What is slow (readings, /proc, Slurm) happens before the lock is taken. Under it the ledger is read and the decision is
made and written, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from prolog.guarded import guarded, unlimited
from prolog.readings import read_gpus, without_driver
from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.errors import DeviceError, LedgerError
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.reconcile import NodeEvidence, doubtful
from slurm_plugin.core.placement.candidate import memory_use
from slurm_plugin.core.placement.choose import Pin, choose_gpu
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation, Demand, Placement
from slurm_plugin.core.units import from_mib
from slurm_plugin.monitor.attribution import JobFinder
from slurm_plugin.monitor.next_sample import await_sample
from slurm_plugin.node.facts import facts_of, pin_of, read_facts
from slurm_plugin.node.node import Node
from slurm_plugin.node.reconcile import reconcile_if_due, reconcile_node
from slurm_plugin.slurm.node.hook_env import HookJob

LOCK_S = 3.0
"""Part of the hook's time; a decision takes milliseconds, so only a stuck hook holds the lock this long."""

SOON_S = 1.5
"""A hook that took longer to a decision has no time left to wait for another sample, for the lock and for Slurm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A placement decision.

    Attributes:
        placement: The GPUs, or why there are none.
        allocation: The job's allocation in the ledger now; None if it has none.
        reading: The first GPU as it was read; None if the job was requeued.
    """

    placement: Placement
    allocation: Allocation | None = None
    reading: GpuReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementContext:
    """All that one attempt to place a job needs in addition to the ledger.

    Attributes:
        node: This node.
        job: The job, as slurmd passes it to its hooks.
        demand: What the job may use.
        settings: The partition's settings.
        readings: The GPUs.
        blind: The driver did not answer. Then the ledger decides: it keeps jobs apart, and only unmanaged processes go
            unseen.
        guarded: Partitions whose jobs rad-monitor's guard stops.
        pin: Whether jobs stay on the GPU that Slurm assigned.
        apart: Whether jobs without an enforced limit are kept apart from all others (prolog/guarded.py).
        soon: Until when the hook has time to wait for another sample.
    """

    node: Node
    job: HookJob
    demand: Demand
    settings: PartitionConfig
    readings: tuple[GpuReading, ...]
    blind: bool
    guarded: frozenset[str]
    pin: Pin
    apart: bool
    soon: Deadline

    @property
    def observes(self) -> bool:
        """Return whether decisions are only logged."""
        return self.node.config.mode == "observe"

    @property
    def demand_now(self) -> Demand:
        """Return the demand, without a limit above the booking where neither guard nor driver would see it used."""
        limited = self.blind or self.job.partition not in self.guarded
        return replace(self.demand, cap_bytes=None) if limited else self.demand


def context_of(
    node: Node, job: HookJob, demand: Demand, settings: PartitionConfig, *, apart: bool = True, soon: Deadline
) -> PlacementContext:
    """Read this node's GPUs, and reconcile the ledger with the running jobs if that is due.

    Args:
        node: This node.
        job: The job, as slurmd passes it to its hooks.
        demand: What the job may use.
        settings: The partition's settings.
        apart: Whether jobs without an enforced limit are kept apart from all others.
        soon: Until when the hook has time to wait for another sample.

    Raises:
        RadError: The GPUs cannot be read.
    """
    blind = False
    try:
        readings = read_gpus(node.config, node.clock)
    except DeviceError:
        readings, blind = without_driver(read_facts(node), now_s=node.clock.now_s()), True
        if not readings:
            raise
    context = PlacementContext(
        node=node,
        job=job,
        demand=demand,
        settings=settings,
        readings=readings,
        blind=blind,
        guarded=guarded(node),
        pin=pin_of(node, settings, facts_of(node, job.node, readings)),
        apart=apart,
        soon=soon,
    )
    if not context.observes and not blind:
        reconcile_if_due(node, readings)
    return context


def with_newer_sample(context: PlacementContext) -> PlacementContext | None:
    """Wait for the monitor's next sample; None if there is none in time."""
    newer = await_sample(context.node.run, context.node.clock)
    return None if newer is None else replace(context, readings=newer)


def reconciled(context: PlacementContext) -> bool:
    """Verify the holders of what a job lacks, and return whether that released anything; young jobs are not checked."""
    node = context.node
    old = doubtful(node.store.read().ledger, NodeEvidence(), now_s=node.clock.monotonic_s())
    return bool(old) and bool(reconcile_node(node, context.readings))


def place_once(context: PlacementContext) -> Placed:
    """Choose and reserve the GPUs of a job.

    Raises:
        RadError: The ledger cannot be read or written; nothing is reserved.
    """
    node, demand, readings = context.node, context.demand_now, context.readings
    allocations = node.store.read().ledger.allocations
    users = {allocation.job_id: allocation.user_id for allocation in allocations}
    alone: frozenset[int] = frozenset()
    if context.apart:
        alone = unlimited(node, demand, context.job.partition, allocations, guarded=context.guarded)
    owners = JobFinder(node.proc).owners(readings, users=users)

    def choose(ledger: Ledger) -> Placement:
        return choose_gpu(
            readings,
            ledger,
            demand,
            context.settings,
            pin=context.pin,
            now_s=node.clock.monotonic_s(),
            window_s=float(node.config.telemetry.window_s),
            owners=owners,
            unlimited=alone,
        )

    if context.observes:
        return Placed(placement=choose(node.store.read().ledger))
    with node.store.locked(Deadline(node.clock, LOCK_S)):
        found = node.store.read()
        if found.lost:
            raise LedgerError("the ledger was lost while the job was placed")
        ledger = found.ledger
        placement = choose(ledger)
        if not placement.gpus:
            after = ledger.release(context.job.job_id, restart=context.job.restart)
            if after is not ledger:
                node.store.write(after)
            return Placed(placement=placement)
        chosen = {reading.uuid: reading for reading in readings if reading.uuid in placement.gpus}
        usable_by_gpu = {
            uuid: reading.usable_bytes - memory_use(reading, ledger.on(uuid), owners).unmanaged_bytes
            for uuid, reading in chosen.items()
        }
        allocation = _allocation(demand, context.settings, placement, chosen, now_s=node.clock.monotonic_s())
        allocation = replace(allocation, partition=context.job.partition)
        node.store.write(ledger.reserve(allocation, usable_by_gpu))
    return Placed(placement=placement, allocation=allocation, reading=chosen[placement.gpus[0]])


def _allocation(
    demand: Demand,
    settings: PartitionConfig,
    placement: Placement,
    chosen: Mapping[str, GpuReading],
    *,
    now_s: float,
) -> Allocation:
    alone = demand.kind == "whole" or settings.policy == "exclusive"
    usable_bytes = min(reading.usable_bytes for reading in chosen.values())
    need_bytes = from_mib(settings.free_min_mib) if demand.booked_bytes is None else demand.booked_bytes
    return Allocation(
        job_id=demand.job_id,
        user_id=demand.user_id,
        kind="whole" if alone else "shared",
        gpus=placement.gpus,
        gpu_indices=demand.gpu_indices,
        booked_bytes=usable_bytes if alone else need_bytes,
        created_s=now_s,
        cap_bytes=None if alone else placement.cap_bytes,
        estimate_bytes=demand.estimate_bytes,
        profile_key=demand.profile_key,
        smact=demand.smact,
        restart=demand.restart,
        uncapped=demand.uncapped,
        server="" if demand.uncapped else demand.server,
    )
