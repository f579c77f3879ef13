"""Placement policies: choose among the candidate GPUs by memory, by activity or in cyclic order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.placement.candidate import Room
from slurm_plugin.core.records.submission import PolicyName

Policy = Callable[[Sequence[Room], Ledger, Sequence[Room]], Room]


def most_available_memory(candidates: Sequence[Room], ledger: Ledger, rooms: Sequence[Room]) -> Room:
    """MAGM: the most free memory, so that a wrong estimate is least likely to end in an OOM.

    Args:
        candidates: GPUs on which the job fits; at least one.
        ledger: All allocations, and the GPU that was allocated last.
        rooms: All GPUs that were considered.
    """
    return min(candidates, key=lambda room: (-room.free_bytes, room.activity, room.index))


def least_utilised(candidates: Sequence[Room], ledger: Ledger, rooms: Sequence[Room]) -> Room:
    """LUG: the least compute in use, so that jobs slow each other down least.

    Args:
        candidates: GPUs on which the job fits; at least one.
        ledger: All allocations, and the GPU that was allocated last.
        rooms: All GPUs that were considered.
    """
    return min(candidates, key=lambda room: (room.activity, -room.free_bytes, room.index))


def most_utilised(candidates: Sequence[Room], ledger: Ledger, rooms: Sequence[Room]) -> Room:
    """MUG: fill the active GPUs first and keep idle ones free as long as possible.

    Args:
        candidates: GPUs on which the job fits; at least one.
        ledger: All allocations, and the GPU that was allocated last.
        rooms: All GPUs that were considered.
    """
    return min(candidates, key=lambda room: (room.idle, -room.activity, room.free_bytes, room.index))


def round_robin(candidates: Sequence[Room], ledger: Ledger, rooms: Sequence[Room]) -> Room:
    """RR: the next GPU in cyclic order after the one allocated last.

    Args:
        candidates: GPUs on which the job fits; at least one.
        ledger: All allocations, and the GPU that was allocated last.
        rooms: All GPUs that were considered.
    """
    last = next((room.index for room in rooms if room.uuid == ledger.last_gpu), -1)
    return min(candidates, key=lambda room: (room.index <= last, room.index))


POLICIES: dict[PolicyName, Policy] = {
    "magm": most_available_memory,
    "lug": least_utilised,
    "mug": most_utilised,
    "round_robin": round_robin,
}
