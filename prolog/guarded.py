"""Who holds jobs to what they booked: MPS by a cap, rad-monitor's guard, or nobody.

On the guard rest caps above bookings and jobs that no MPS server caps. Once neither is
there for a job, it begins on idle GPUs, and nobody joins it there until the guard is back. Where the site wants shared
jobs of one GPU without both, that is its word, and they share.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slurm_plugin.core.records.node import Demand, Reservation
from slurm_plugin.monitor.window import guarded_now
from slurm_plugin.node.node import Node


def guarded(node: Node) -> frozenset[str]:
    """Return the partitions of whose jobs somebody would stop those that keep from others what they booked.

    Of no others' jobs a cap lies above the booking.

    Args:
        node: This node.
    """
    return guarded_now(node.run, node.config.guarded, now_s=node.clock.now_s())


def unheld(
    node: Node,
    demand: Demand,
    partition: str,
    reservations: Sequence[Reservation],
    *,
    guarded: Collection[str],
) -> frozenset[int]:
    """Return the ids of the jobs that nothing holds to what they booked just now.

    Args:
        node: This node.
        demand: Of the job that is to start.
        partition: Its partition.
        reservations: What others hold on this node.
        guarded: Partitions whose jobs the guard stops.
    """
    loose = [
        held
        for held in reservations
        if held.managed and held.kind == "shared" and held.partition not in guarded
    ]
    lost = _lost_caps(node) if loose else frozenset()
    found = {
        held.job_id
        for held in loose
        if held.job_id in lost or _nothing_caps(node, held.partition, len(held.gpus), uncapped=held.uncapped)
    }
    starts = demand.kind == "shared" and partition not in guarded
    if starts and _nothing_caps(node, partition, demand.gpus, uncapped=demand.uncapped):
        found.add(demand.job_id)
    return frozenset(found)


def _nothing_caps(node: Node, partition: str, gpus: int, *, uncapped: bool) -> bool:
    """Return whether MPS does not cap such a job: it cannot, or a site that wants its jobs guarded wants no caps."""
    wanted = partition in node.config.guarded
    return gpus > 1 or uncapped or (wanted and not node.config.caps(partition))


def _lost_caps(node: Node) -> frozenset[int]:
    from slurm_plugin.mps import Mps  # only where the guard is away

    return Mps(node.run, clock=node.clock).uncapped()
