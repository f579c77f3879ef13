"""Choose the GPUs of a job: one filter for all policies, then one function per policy.

The policies are those of the thesis (section 6.2.2); for a job that shares several GPUs they choose one after the
other. In the code a Slurm GPU index is a `seat` and a physical GPU is a `room`. Where jobs can reach any GPU, a job may
get another physical GPU than the one of its index. As long as each index in use keeps its physical GPU, there is an
idle GPU for each index that Slurm may still allocate as a whole, and no job must be requeued.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.pooled_reserve import share, widest
from slurm_plugin.core.placement.candidate import Room, room_of
from slurm_plugin.core.placement.policies import POLICIES, least_utilised
from slurm_plugin.core.placement.servers import near_server
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Demand, Placement, Reservation
from slurm_plugin.core.units import from_mib, human

Pin = Literal["slurm", "bound"]
"""Physical GPUs that a job may get: that of its Slurm GPU index; any, but an index in use keeps its GPU."""


def choose_gpu(
    readings: Sequence[GpuReading],
    ledger: Ledger,
    demand: Demand,
    settings: PartitionConfig,
    *,
    pin: Pin,
    now_s: float,
    window_s: float = 90.0,
    owners: Mapping[int, int] | None = None,
    unheld: Collection[int] = (),
) -> Placement:
    """Choose the GPUs of a job.

    Args:
        readings: All GPUs of the node, activity averaged over the window.
        ledger: All allocations. An allocation of an earlier run of the same job does not count.
        demand: What the job needs.
        settings: The partition's settings.
        pin: Which physical GPUs the job may get.
        now_s: Seconds since the node's boot.
        window_s: Length of the window behind the readings' activity.
        owners: Job id of each GPU process, where known; other processes are unmanaged.
        unheld: Ids of the jobs, perhaps this one, without an enforced limit: each gets its GPUs exclusively.
    """
    ledger = ledger.release(demand.job_id, restart=demand.restart)
    rooms = tuple(
        room_of(
            reading, ledger.on(reading.uuid), settings, now_s=now_s, window_s=window_s, owners=owners or {}
        )
        for reading in readings
        if reading.healthy and not reading.mig
    )
    if pin == "slurm":
        rooms = tuple(room for room in rooms if room.index in demand.seats)
    if demand.kind == "whole" or settings.policy == "exclusive":
        return _whole(rooms, demand)
    return _shared(rooms, ledger, demand, settings, pin=pin, unheld=unheld)


def _whole(rooms: Sequence[Room], demand: Demand) -> Placement:
    """Take idle GPUs: first those of the job's indices, then those without unmanaged processes, then the emptiest."""
    idle = sorted(
        (room for room in rooms if room.idle),
        key=lambda room: (
            room.unmanaged_bytes > room.free_bytes,
            room.index not in demand.seats,
            room.unmanaged_bytes,
            room.index,
        ),
    )
    if len(idle) < demand.gpus:
        return Placement(gpus=(), reason=f"{len(idle)} of {demand.gpus} GPUs idle", put_back=True)
    chosen = sorted(idle[: demand.gpus], key=lambda room: room.index)
    return Placement(gpus=tuple(room.uuid for room in chosen), reason="idle")


def _shared(
    rooms: Sequence[Room],
    ledger: Ledger,
    demand: Demand,
    settings: PartitionConfig,
    *,
    pin: Pin,
    unheld: Collection[int],
) -> Placement:
    """Take a part of each of several GPUs: filter by other jobs and memory, then let the policy choose each."""
    open_rooms = [room for room in rooms if all(_may_join(held, demand, settings) for held in room.jobs)]
    if not open_rooms:
        reason = f"of the {len(rooms)} GPUs that it may have none is shared or idle"
        return Placement(gpus=(), reason=reason, put_back=True)
    held_rooms = [room for room in open_rooms if _all_held(room, demand, unheld)]
    fitting = [room for room in held_rooms if _fits(room, demand, settings)]
    if len(fitting) < demand.gpus and len(held_rooms) < len(open_rooms):
        return Placement(gpus=(), reason=_NOTHING_HOLDS, put_back=True, unheld=True)
    if len(fitting) < demand.gpus:
        return _too_full(open_rooms, fitting, demand, settings)
    taken, calm = _one_for_each(fitting, rooms, ledger, demand, settings, pin=pin)
    if not calm and settings.on_saturated == "wait" and demand.restart < settings.saturated_waits:
        return Placement(
            gpus=(), reason=f"every GPU is at or above SMACT {settings.smact_max:g}", put_back=True
        )
    note = "" if calm else ", saturated"
    return Placement(
        gpus=tuple(room.uuid for room in taken),
        cap_bytes=min(_cap(room, demand, settings) for room in taken) if demand.cap_bytes else None,
        reason=f"{settings.policy}: {'; '.join(map(_told, taken))}{note}",
    )


def _too_full(
    open_rooms: Sequence[Room], fitting: Sequence[Room], demand: Demand, settings: PartitionConfig
) -> Placement:
    """Requeue a job, and name the GPUs where it lacks only what others use above their bookings."""
    owing = [room for room in open_rooms if room not in fitting and _owes(room, demand, settings)]
    owing.sort(key=lambda room: -room.free_bytes)
    most = max((room.free_bytes for room in open_rooms), default=0)
    few = "no GPU has" if demand.gpus == 1 else f"{len(fitting)} of {demand.gpus} GPUs have"
    return Placement(
        gpus=(),
        reason=f"{few} the memory, {human(max(0, most))} at most",
        put_back=True,
        owed=tuple(room.uuid for room in owing[: demand.gpus - len(fitting)]),
        lingers=sum(room in fitting or _unbooked(room, demand, settings) for room in open_rooms)
        >= demand.gpus,
    )


def _one_for_each(
    fitting: Sequence[Room],
    rooms: Sequence[Room],
    ledger: Ledger,
    demand: Demand,
    settings: PartitionConfig,
    *,
    pin: Pin,
) -> tuple[list[Room], bool]:
    """Return a physical GPU for each GPU of a job, indices in use first, and whether all have compute left."""
    chosen: dict[int, Room] = {}
    all_calm = True
    seats = _seats(demand)
    for number in sorted(range(demand.gpus), key=lambda number: not _own(fitting, seats[number])):
        left = [room for room in fitting if room not in chosen.values()]
        allowed = _of_seat(left, seats[number], pin)
        calm = [room for room in allowed if room.idle or room.activity < settings.smact_max]
        choose, candidates = (POLICIES[settings.policy], calm) if calm else (least_utilised, allowed)
        best = choose(candidates, ledger, rooms)
        in_turn = settings.policy == "round_robin"
        chosen[number] = (
            best if in_turn else near_server(best, candidates, demand.server, settings.server_affinity)
        )
        all_calm = all_calm and bool(calm)
    return [chosen[number] for number in range(demand.gpus)], all_calm


def _told(room: Room) -> str:
    activity = "unknown" if room.smact is None else f"{room.smact:.2f}"
    return f"{human(room.free_bytes)} free, SMACT {activity}, {len(room.jobs)} neighbours"


def _seats(demand: Demand) -> list[frozenset[int]]:
    """Return the GPU indices that each GPU of a job may stand for: its own, or all if Slurm gave another number."""
    if len(demand.seats) == demand.gpus:
        return [frozenset({seat}) for seat in demand.seats]
    return [frozenset(demand.seats)] * demand.gpus


def _may_join(held: Reservation, demand: Demand, settings: PartitionConfig) -> bool:
    """Return whether a job may share a GPU with an existing allocation."""
    return held.kind == "shared" and (held.user_id == demand.user_id or not settings.one_user_per_gpu)


_NOTHING_HOLDS = "without rad-monitor's guard, a job without an enforced limit does not share"


def _all_held(room: Room, demand: Demand, unheld: Collection[int]) -> bool:
    """Return whether every job that would share a GPU has an enforced limit."""
    return room.idle or not any(job in unheld for job in (demand.job_id, *(one.job_id for one in room.jobs)))


def _fits(room: Room, demand: Demand, settings: PartitionConfig) -> bool:
    """Return whether the memory is free, with a margin where memory is used that no job booked.

    Without unbooked usage there is no margin: Slurm allocates a GPU to its last shard, and would be refused for ever.
    """
    margin_bytes = from_mib(settings.margin_mib)
    surprises = room.overrun_bytes > 0 or room.unmanaged_bytes > margin_bytes
    need_bytes = _need_bytes(demand, settings)
    return room.free_bytes >= need_bytes + (margin_bytes if surprises else 0)


def _owes(room: Room, demand: Demand, settings: PartitionConfig) -> bool:
    """Return whether a job would fit if no job on the GPU used more than it booked."""
    return room.overrun_bytes > 0 and _booked_with(room, demand, settings) <= room.room_bytes


def _unbooked(room: Room, demand: Demand, settings: PartitionConfig) -> bool:
    """Return whether a job would fit if only booked memory were in use."""
    return _booked_with(room, demand, settings) <= room.room_bytes + room.unmanaged_bytes


def _booked_with(room: Room, demand: Demand, settings: PartitionConfig) -> int:
    """Return the memory booked on a GPU plus what a job needs."""
    return sum(held.booked_bytes for held in room.jobs) + _need_bytes(demand, settings)


def _need_bytes(demand: Demand, settings: PartitionConfig) -> int:
    return from_mib(settings.free_min_mib) if demand.booked_bytes is None else demand.booked_bytes


def _cap(room: Room, demand: Demand, settings: PartitionConfig) -> int:
    """Return the limit of an incoming job such that the overshoots of all jobs on the GPU still fit.

    It never exceeds the limit in the booking. On a nearly full GPU it is lower, down to the booked memory, which is
    guaranteed whatever limits earlier jobs got.
    """
    need_bytes = _need_bytes(demand, settings)
    newcomer = share(
        need_bytes,
        cap_bytes=demand.cap_bytes,
        estimate_bytes=demand.estimate_bytes,
        model=demand.profile_key,
    )
    return max(need_bytes, widest(room.shares, newcomer, room.room_bytes) or 0)


def _of_seat(fitting: list[Room], seats: frozenset[int], pin: Pin) -> list[Room]:
    """Return the GPU of an index in use, or the idle GPUs for an unused index; others only where those lack memory."""
    if pin == "slurm":
        return [room for room in fitting if room.index in seats]
    idle = [room for room in fitting if room.idle]
    return _own(fitting, seats) or idle or fitting


def _own(rooms: Sequence[Room], seats: frozenset[int]) -> list[Room]:
    """Return the physical GPUs of these GPU indices, where they are in use."""
    return [room for room in rooms if any(seats & held.seats_on(room.uuid) for held in room.jobs)]
