"""Choose the GPUs of a job: one filter for all policies, then one sort key per policy.

The policies are those of the thesis (section 6.2.2); for a job that shares several GPUs they choose one after the
other. In the code `gpu_index` is Slurm's index and `gpu` is a physical GPU. Where jobs can reach any GPU, a job may get
another physical GPU than the one of its index. As long as each index in use keeps its physical GPU, there is an
idle GPU for each index that Slurm may still allocate as a whole, and no job must be requeued.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.pooled_reserve import share, widest
from slurm_plugin.core.placement.candidate import CandidateGpu, candidate_of
from slurm_plugin.core.placement.policies import POLICIES
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation, Demand, Placement
from slurm_plugin.core.units import counted, from_mib, human

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
    unlimited: Collection[int] = (),
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
        unlimited: Ids of the jobs, perhaps this one, without an enforced limit: each gets its GPUs exclusively.
    """
    ledger = ledger.release(demand.job_id, restart=demand.restart)
    gpus = tuple(
        candidate_of(
            reading, ledger.on(reading.uuid), settings, now_s=now_s, window_s=window_s, owners=owners or {}
        )
        for reading in readings
        if reading.healthy and not reading.mig
    )
    if pin == "slurm":
        gpus = tuple(gpu for gpu in gpus if gpu.index in demand.gpu_indices)
    if demand.kind == "whole" or settings.policy == "exclusive":
        return _whole(gpus, demand)
    return _shared(gpus, ledger, demand, settings, pin=pin, unlimited=unlimited)


def _whole(gpus: Sequence[CandidateGpu], demand: Demand) -> Placement:
    """Take idle GPUs: first those of the job's indices, then those without unmanaged processes, then the emptiest."""
    idle = sorted(
        (gpu for gpu in gpus if gpu.idle),
        key=lambda gpu: (
            gpu.unmanaged_bytes > gpu.free_bytes,
            gpu.index not in demand.gpu_indices,
            gpu.unmanaged_bytes,
            gpu.index,
        ),
    )
    if len(idle) < demand.gpus:
        return Placement(gpus=(), reason=f"{len(idle)} of {counted(demand.gpus, 'GPU')} idle", requeue=True)
    chosen = sorted(idle[: demand.gpus], key=lambda gpu: gpu.index)
    return Placement(gpus=tuple(gpu.uuid for gpu in chosen), reason="idle")


def _shared(
    gpus: Sequence[CandidateGpu],
    ledger: Ledger,
    demand: Demand,
    settings: PartitionConfig,
    *,
    pin: Pin,
    unlimited: Collection[int],
) -> Placement:
    """Take a part of each of several GPUs: filter by other jobs and memory, then let the policy choose each."""
    open_gpus = [
        gpu for gpu in gpus if all(_may_join(allocation, demand, settings) for allocation in gpu.jobs)
    ]
    if not open_gpus:
        reason = f"of the {counted(len(gpus), 'GPU')} that it may have none is shared or idle"
        return Placement(gpus=(), reason=reason, requeue=True)
    limited_gpus = [gpu for gpu in open_gpus if _all_limited(gpu, demand, unlimited)]
    fitting = [gpu for gpu in limited_gpus if _fits(gpu, demand, settings)]
    if len(fitting) < demand.gpus and len(limited_gpus) < len(open_gpus):
        return Placement(gpus=(), reason=_NOTHING_HOLDS, requeue=True, unlimited=True)
    if len(fitting) < demand.gpus:
        return _too_full(open_gpus, fitting, demand, settings)
    last = next((gpu.index for gpu in gpus if gpu.uuid == ledger.last_gpu), -1)
    taken, calm = _one_for_each(fitting, last, demand, settings, pin=pin)
    if not calm and settings.on_saturated == "wait" and demand.restart < settings.saturated_waits:
        return Placement(
            gpus=(), reason=f"every GPU is at or above SMACT {settings.smact_max:g}", requeue=True
        )
    note = "" if calm else ", saturated"
    return Placement(
        gpus=tuple(gpu.uuid for gpu in taken),
        cap_bytes=min(_cap(gpu, demand, settings) for gpu in taken) if demand.cap_bytes else None,
        reason=f"{settings.policy}: {'; '.join(map(_described, taken))}{note}",
    )


def _too_full(
    open_gpus: Sequence[CandidateGpu],
    fitting: Sequence[CandidateGpu],
    demand: Demand,
    settings: PartitionConfig,
) -> Placement:
    """Requeue a job, and name the GPUs where it lacks only what other jobs use above their bookings."""
    blocked = [gpu for gpu in open_gpus if gpu not in fitting and _kept_out_by_overrun(gpu, demand, settings)]
    blocked.sort(key=lambda gpu: -gpu.free_bytes)
    most = max((gpu.free_bytes for gpu in open_gpus), default=0)
    few = "no GPU has" if demand.gpus == 1 else f"{len(fitting)} of {demand.gpus} GPUs have"
    return Placement(
        gpus=(),
        reason=f"{few} the memory, {human(max(0, most))} at most",
        requeue=True,
        overrun_gpus=tuple(gpu.uuid for gpu in blocked[: demand.gpus - len(fitting)]),
        lingers=sum(gpu in fitting or _unbooked(gpu, demand, settings) for gpu in open_gpus) >= demand.gpus,
    )


def _one_for_each(
    fitting: Sequence[CandidateGpu], last: int, demand: Demand, settings: PartitionConfig, *, pin: Pin
) -> tuple[list[CandidateGpu], bool]:
    """Return a physical GPU for each GPU of a job, indices in use first, and whether all have compute left.

    `last` is the index of the GPU that was allocated last.
    """
    chosen: dict[int, CandidateGpu] = {}
    all_calm = True
    gpu_indices = _choices(demand)
    for number in sorted(range(demand.gpus), key=lambda number: not _own(fitting, gpu_indices[number])):
        left = [gpu for gpu in fitting if gpu not in chosen.values()]
        allowed = _of_index(left, gpu_indices[number], pin)
        calm = [gpu for gpu in allowed if gpu.idle or gpu.activity < settings.smact_max]
        policy = POLICIES[settings.policy if calm else "lug"]
        chosen[number] = min(calm or allowed, key=lambda gpu: policy(gpu, last))
        all_calm = all_calm and bool(calm)
    return [chosen[number] for number in range(demand.gpus)], all_calm


def _described(gpu: CandidateGpu) -> str:
    activity = "unknown" if gpu.smact is None else f"{gpu.smact:.2f}"
    return f"{human(gpu.free_bytes)} free, SMACT {activity}, {len(gpu.jobs)} neighbours"


def _choices(demand: Demand) -> list[frozenset[int]]:
    """Return the GPU indices that each GPU of a job may stand for: its own, or all if Slurm gave another number."""
    if len(demand.gpu_indices) == demand.gpus:
        return [frozenset({gpu_index}) for gpu_index in demand.gpu_indices]
    return [frozenset(demand.gpu_indices)] * demand.gpus


def _may_join(allocation: Allocation, demand: Demand, settings: PartitionConfig) -> bool:
    """Return whether a job may share a GPU with an existing allocation."""
    return allocation.kind == "shared" and (
        allocation.user_id == demand.user_id or not settings.one_user_per_gpu
    )


_NOTHING_HOLDS = "without rad-monitor's guard, a job without an enforced limit does not share"


def _all_limited(gpu: CandidateGpu, demand: Demand, unlimited: Collection[int]) -> bool:
    """Return whether every job that would share a GPU has an enforced limit."""
    return gpu.idle or not any(job in unlimited for job in (demand.job_id, *(one.job_id for one in gpu.jobs)))


def _fits(gpu: CandidateGpu, demand: Demand, settings: PartitionConfig) -> bool:
    """Return whether the memory is free, with a margin where memory is used that no job booked.

    Without unbooked usage there is no margin: Slurm allocates a GPU to its last shard, and would be refused for ever.
    """
    margin_bytes = from_mib(settings.margin_mib)
    overruns = gpu.overrun_bytes > 0 or gpu.unmanaged_bytes > margin_bytes
    need_bytes = _need_bytes(demand, settings)
    return gpu.free_bytes >= need_bytes + (margin_bytes if overruns else 0)


def _kept_out_by_overrun(gpu: CandidateGpu, demand: Demand, settings: PartitionConfig) -> bool:
    """Return whether a job would fit if no job on the GPU used more than it booked."""
    return gpu.overrun_bytes > 0 and _booked_with(gpu, demand, settings) <= gpu.usable_bytes


def _unbooked(gpu: CandidateGpu, demand: Demand, settings: PartitionConfig) -> bool:
    """Return whether a job would fit if only booked memory were in use."""
    return _booked_with(gpu, demand, settings) <= gpu.usable_bytes + gpu.unmanaged_bytes


def _booked_with(gpu: CandidateGpu, demand: Demand, settings: PartitionConfig) -> int:
    """Return the memory booked on a GPU plus what a job needs."""
    return sum(allocation.booked_bytes for allocation in gpu.jobs) + _need_bytes(demand, settings)


def _need_bytes(demand: Demand, settings: PartitionConfig) -> int:
    return from_mib(settings.free_min_mib) if demand.booked_bytes is None else demand.booked_bytes


def _cap(gpu: CandidateGpu, demand: Demand, settings: PartitionConfig) -> int:
    """Return the limit of an incoming job such that the overshoots of all jobs on the GPU still fit.

    It never exceeds the limit in the booking. On a nearly full GPU it is lower, down to the booked memory, which is
    guaranteed whatever limits earlier jobs got.
    """
    need_bytes = _need_bytes(demand, settings)
    incoming = share(
        need_bytes,
        cap_bytes=demand.cap_bytes,
        estimate_bytes=demand.estimate_bytes,
        model=demand.profile_key,
    )
    return max(need_bytes, widest(gpu.shares, incoming, gpu.usable_bytes) or 0)


def _of_index(fitting: list[CandidateGpu], gpu_indices: frozenset[int], pin: Pin) -> list[CandidateGpu]:
    """Return the GPU of an index in use, or the idle GPUs for an unused index; others only where those lack memory."""
    if pin == "slurm":
        return [gpu for gpu in fitting if gpu.index in gpu_indices]
    idle = [gpu for gpu in fitting if gpu.idle]
    return _own(fitting, gpu_indices) or idle or fitting


def _own(gpus: Sequence[CandidateGpu], gpu_indices: frozenset[int]) -> list[CandidateGpu]:
    """Return the physical GPUs of these GPU indices, where they are in use."""
    return [
        gpu
        for gpu in gpus
        if any(gpu_indices & allocation.gpu_indices_on(gpu.uuid) for allocation in gpu.jobs)
    ]
