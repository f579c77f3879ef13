"""What rests on rad-monitor's guard: caps above bookings, what settled jobs give back, jobs that no MPS server caps.

A job of several GPUs runs past MPS. Once the guard is away, by a fault or by the admin's word, nothing holds it to what
it booked: it begins on idle GPUs, and nobody joins it there until the guard is back.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_plugin.core.node_records import Demand, Reservation
from slurm_plugin.core.trim import settled_bytes
from slurm_plugin.monitor.window import STALE_AFTER_S, guard_acts, read_job
from slurm_plugin.node.node import Node


def guarded(node: Node, partition: str) -> bool:
    """Return whether somebody would stop a job that keeps from others what they booked; else no cap lies above it.

    Args:
        node: This node.
        partition: The job's.
    """
    wanted = partition in node.config.guarded
    return wanted and guard_acts(node.run, partition, now_s=node.clock.now_s())


def unheld(node: Node, demand: Demand, partition: str, reservations: Sequence[Reservation]) -> frozenset[int]:
    """Return the ids of the jobs that nothing holds to what they booked just now.

    Args:
        node: This node.
        demand: Of the job that is to start.
        partition: Its partition.
        reservations: What others hold on this node.
    """
    found = {
        held.job_id
        for held in reservations
        if held.managed
        and held.kind == "shared"
        and not held.part_of_one_gpu
        and not guarded(node, held.partition)
    }
    if demand.kind == "shared" and demand.gpus > 1 and not guarded(node, partition):
        found.add(demand.job_id)
    return frozenset(found)


def settled_of(node: Node, reservations: Sequence[Reservation]) -> dict[int, int]:
    """Return what jobs that have settled are seen to need, where their partition has them give back the rest, in bytes.

    Who takes again what he gave back is stopped by the guard. Without one, and without a monitor that still sees the
    job, nothing is given back.

    Args:
        node: This node.
        reservations: What jobs hold on this node.
    """
    found = {}
    now_s, monotonic_s = node.clock.now_s(), node.clock.monotonic_s()
    for held in reservations:
        settings = node.config.partitions.get(held.partition)
        trims = settings is not None and settings.trim and guarded(node, held.partition)
        usage = read_job(node.run, held.job_id) if trims else None
        if usage is not None and abs(now_s - usage.last_s) <= STALE_AFTER_S:
            size = settled_bytes(
                held,
                age_s=monotonic_s - held.created_s,
                peak_bytes=usage.peak_bytes,
                steady_samples=usage.steady_samples,
            )
            if size is not None:
                found[held.job_id] = size
    return found
