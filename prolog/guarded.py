"""Determine what enforces a job's booking: an MPS limit, rad-monitor's guard, or nothing.

Limits above bookings, and jobs without an MPS limit, rely on the guard. If neither is active for a job, it starts on
idle GPUs, and no other job joins it there until the guard is back. Where the site has configured shared jobs of one GPU
without both, they share.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slurm_plugin.core.records.node import Allocation, Demand
from slurm_plugin.monitor.window import guarded_now
from slurm_plugin.node.node import Node


def guarded(node: Node) -> frozenset[str]:
    """Return the partitions whose jobs the guard stops if they take memory that other jobs booked.

    Only jobs of these partitions have limits above the booking.
    """
    return guarded_now(node.run, node.config.guarded, now_s=node.clock.now_s())


def unlimited(
    node: Node,
    demand: Demand,
    partition: str,
    allocations: Sequence[Allocation],
    *,
    guarded: Collection[str],
) -> frozenset[int]:
    """Return the ids of the jobs without an enforced limit at this time.

    Args:
        node: This node.
        demand: Demand of the job that is to start.
        partition: Its partition.
        allocations: Allocations of other jobs on this node.
        guarded: Partitions whose jobs the guard stops.
    """
    loose = [
        allocation
        for allocation in allocations
        if allocation.managed and allocation.kind == "shared" and allocation.partition not in guarded
    ]
    lost = _lost_caps(node) if loose else frozenset()
    found = {
        allocation.job_id
        for allocation in loose
        if allocation.job_id in lost
        or _nothing_caps(node, allocation.partition, len(allocation.gpus), uncapped=allocation.uncapped)
    }
    starts = demand.kind == "shared" and partition not in guarded
    if starts and _nothing_caps(node, partition, demand.gpus, uncapped=demand.uncapped):
        found.add(demand.job_id)
    return frozenset(found)


def _nothing_caps(node: Node, partition: str, gpus: int, *, uncapped: bool) -> bool:
    """Return whether MPS does not limit such a job: it cannot, or the site wants guarded jobs without limits."""
    wanted = partition in node.config.guarded
    return gpus > 1 or uncapped or (wanted and not node.config.caps(partition))


def _lost_caps(node: Node) -> frozenset[int]:
    from slurm_plugin.mps import Mps  # only where the guard is away

    return Mps(node.run, clock=node.clock).uncapped()
