"""State of one GPU as seen by an incoming job: free memory, existing allocations, expected activity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpumemnet.records import field, frozen
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.ledger.pooled_reserve import Share, share_of
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation


@frozen
class CandidateGpu:
    """State of one GPU as seen by an incoming job.

    Attributes:
        uuid: The GPU.
        index: The number that Slurm uses.
        free_bytes: Free memory now, less what other jobs booked and do not use yet.
        smact: Activity of the window plus expected activity of jobs younger than the window; None if not known.
        unmanaged_bytes: Memory of processes that belong to no job of the ledger.
        overrun_bytes: Memory that jobs use above their bookings.
        jobs: Allocations on it.
        usable_bytes: Memory that all jobs together may use: all that unmanaged processes leave.
        shares: What each of those jobs may need.
    """

    uuid: str
    index: int
    free_bytes: int
    usable_bytes: int
    shares: tuple[Share, ...]
    smact: float | None
    unmanaged_bytes: int
    overrun_bytes: int
    jobs: tuple[Allocation, ...]

    @property
    def idle(self) -> bool:
        """Return whether no job has an allocation on it."""
        return not self.jobs

    @property
    def activity(self) -> float:
        """Return the activity that policies compare; unknown activity counts as none."""
        return self.smact or 0.0


def candidate_of(
    reading: GpuReading,
    jobs: tuple[Allocation, ...],
    settings: PartitionConfig,
    *,
    now_s: float,
    window_s: float,
    owners: Mapping[int, int],
) -> CandidateGpu:
    """Return the state of a GPU as seen by an incoming job.

    Args:
        reading: The GPU, activity averaged over the window.
        jobs: Allocations on it.
        settings: The partition's settings.
        now_s: Seconds since the node's boot.
        window_s: Length of the window behind the reading's activity, in seconds.
        owners: Job id of each GPU process, where known; other processes are unmanaged.
    """
    use = memory_use(reading, jobs, owners)
    expected = sum(_still_unseen(allocation, settings, now_s=now_s, window_s=window_s) for allocation in jobs)
    return CandidateGpu(
        uuid=reading.uuid,
        index=reading.index,
        free_bytes=reading.usable_bytes - reading.memory_used_bytes - use.untouched_bytes,
        usable_bytes=reading.usable_bytes - use.unmanaged_bytes,
        shares=tuple(
            share_of(allocation, use.touched_bytes.get(allocation.job_id, 0)) for allocation in jobs
        ),
        smact=reading.smact + expected if reading.smact is not None else (expected or None),
        unmanaged_bytes=use.unmanaged_bytes,
        overrun_bytes=use.overrun_bytes,
        jobs=jobs,
    )


@frozen
class MemoryUse:
    """Used memory of a GPU, by owner.

    Attributes:
        untouched_bytes: Booked by jobs and not yet used.
        overrun_bytes: Used by jobs above their bookings.
        unmanaged_bytes: Used by processes that belong to no job.
        touched_bytes: Memory that each job uses, by job id; empty where the driver does not report it.
    """

    untouched_bytes: int
    overrun_bytes: int
    unmanaged_bytes: int
    touched_bytes: Mapping[int, int] = field(default_factory=dict)


def memory_use(reading: GpuReading, jobs: Sequence[Allocation], owners: Mapping[int, int]) -> MemoryUse:
    """Return the used memory of a GPU, by owner.

    Where the driver does not report the memory of some process of a job, the sum of all jobs is compared with all used
    memory.

    Args:
        reading: The GPU.
        jobs: Allocations on it.
        owners: Job id of each GPU process, where known; other processes are unmanaged.
    """
    touched = dict.fromkeys((allocation.job_id for allocation in jobs), 0)
    complete = True
    for process in reading.processes:
        job_id = owners.get(process.pid)
        if job_id in touched:
            touched[job_id] += process.memory_bytes or 0
            complete = complete and process.memory_bytes is not None
    used_bytes = reading.memory_used_bytes
    if not complete:
        booked_bytes = sum(allocation.booked_bytes for allocation in jobs)
        return MemoryUse(
            untouched_bytes=max(0, booked_bytes - used_bytes),
            overrun_bytes=0,
            unmanaged_bytes=max(0, used_bytes - booked_bytes),
        )
    return MemoryUse(
        untouched_bytes=sum(
            max(0, allocation.booked_bytes - touched[allocation.job_id]) for allocation in jobs
        ),
        overrun_bytes=sum(
            max(0, touched[allocation.job_id] - allocation.booked_bytes) for allocation in jobs
        ),
        unmanaged_bytes=max(0, used_bytes - sum(touched.values())),
        touched_bytes=touched,
    )


def _still_unseen(
    allocation: Allocation, settings: PartitionConfig, *, now_s: float, window_s: float
) -> float:
    """Return the share of a young job's activity that the window's mean does not show yet."""
    age_s = max(0.0, now_s - allocation.created_s)
    # Two new jobs of unknown activity count as a full GPU until the window covers them.
    expected = allocation.smact if allocation.smact is not None else settings.smact_max / 2
    return expected * max(0.0, 1.0 - age_s / window_s)
