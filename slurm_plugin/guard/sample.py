"""One sample of a node's jobs: the record that all judgements are based on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.guard.violation import Response, Violation, ViolationKind
from slurm_plugin.monitor.attribution import Traced


@dataclass(frozen=True, slots=True, kw_only=True)
class Mine:
    """RAD's part of MPS on this node.

    Attributes:
        servers: RAD's MPS servers and daemons; they use a little memory on behalf of all jobs.
        clients: (GPU, job id) of each job that was given a server and whose daemon is running.
        capped: Those of them that were given a memory limit.
    """

    servers: Collection[Process] = ()
    clients: Collection[tuple[str, int]] = ()
    capped: Collection[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample of a node.

    Attributes:
        readings: All GPUs, with their processes.
        ledger: The allocations, read after the GPUs were.
        traced: Owner of each GPU process, by pid.
        mine: RAD's MPS servers and their jobs.
        ages_s: Seconds since each process started.
        now_s: Seconds since boot.
        leaving: (job id, restart) of the runs that were stopped a moment ago.
        idle: Seconds since each job that is idle computed anything, by job id.
        lacking_bytes: Shortfall of each GPU, by UUID: memory that jobs lack which Slurm started and RAD had to requeue.
    """

    readings: Sequence[GpuReading]
    ledger: Ledger
    traced: Mapping[int, Traced]
    mine: Mine
    ages_s: Mapping[Process, float]
    now_s: float
    leaving: Collection[tuple[int, int]] = ()
    idle: Mapping[int, float] = field(default_factory=dict)
    lacking_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def owners(self) -> dict[int, int]:
        """Return the job id of each GPU process that belongs to a job, by pid."""
        return {pid: one.job_id for pid, one in self.traced.items() if one.job_id is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUsageOnGpu:
    """Usage of one job on one GPU.

    Attributes:
        reading: The GPU.
        allocation: The job's allocation, of this GPU or of others.
        settings: Settings of its partition.
        rows: Its processes on this GPU.
    """

    reading: GpuReading
    allocation: Allocation
    settings: PartitionConfig
    rows: tuple[tuple[GpuProcess, Process], ...]

    @property
    def run(self) -> tuple[int, int]:
        """Return job id and restart count."""
        return self.allocation.job_id, self.allocation.restart

    @property
    def key(self) -> tuple[str, int]:
        """Return GPU and job id, as in `Mine`."""
        return self.reading.uuid, self.allocation.job_id

    @property
    def total_bytes(self) -> int:
        """Return the memory its processes use on this GPU."""
        return _bytes_of(self.rows)

    @property
    def excess_bytes(self) -> int:
        """Return the usage above its booking."""
        return max(0, self.total_bytes - self.allocation.booked_bytes)

    def violation(
        self,
        kind: ViolationKind,
        limit_bytes: int,
        response: Response,
        rows: tuple[tuple[GpuProcess, Process], ...] | None = None,
    ) -> Violation:
        """Return the job's violation.

        Args:
            kind: Its kind.
            limit_bytes: Memory the job may use here.
            response: The response.
            rows: The processes that caused it; None for all of the job's.
        """
        counted = self.rows if rows is None else rows
        return Violation(
            kind=kind,
            gpu=self.reading.uuid,
            job_id=self.allocation.job_id,
            user_id=self.allocation.user_id,
            restart=self.allocation.restart,
            used_bytes=_bytes_of(counted),
            limit_bytes=limit_bytes,
            free_bytes=self.reading.free_bytes,
            processes=tuple(process for _, process in counted),
            response=response,
        )


def _bytes_of(rows: tuple[tuple[GpuProcess, Process], ...]) -> int:
    return sum(row.memory_bytes or 0 for row, _ in rows)
