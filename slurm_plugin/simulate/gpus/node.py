"""One node: the production placement chooses GPUs for its jobs and books them in the production ledger."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.placement.choose import choose_gpu
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation, Demand, Placement
from slurm_plugin.core.records.submission import BookingKind
from slurm_plugin.simulate.cluster import SimulatedCluster
from slurm_plugin.simulate.gpus.gpu import SimulatedGpu
from slurm_plugin.simulate.progress import SimulatedJob


class SimulatedNode:
    """The GPUs of one host and their ledger."""

    def __init__(self, gpus: Sequence[SimulatedGpu], cluster: SimulatedCluster) -> None:
        """Start with an empty ledger."""
        self._gpus, self._cluster, self._ledger = gpus, cluster, Ledger()
        self._window_s = float(cluster.config.telemetry.window_s)
        self._usable_bytes = {gpu.uuid: cluster.memory_bytes for gpu in gpus}

    def place(self, job: SimulatedJob, gpu_indices: tuple[int, ...], now_s: float) -> Placement:
        """Choose GPUs for a job with the production placement, and book them.

        Args:
            job: The job.
            gpu_indices: GPU indices that Slurm assigned.
            now_s: Seconds since the trace began.
        """
        cluster, booking = self._cluster, job.booking
        gpus = (
            self._gpus if cluster.pin != "slurm" else [gpu for gpu in self._gpus if gpu.index in gpu_indices]
        )
        kind: BookingKind = "whole" if job.whole else "shared"
        demand = Demand(
            job_id=job.number,
            user_id=job.user_id,
            kind=kind,
            gpus=job.gpus,
            booked_bytes=None if booking is None else booking.memory_bytes,
            gpu_indices=gpu_indices,
            estimate_bytes=None if booking is None else booking.estimate_bytes,
            cap_bytes=None if booking is None else booking.cap_bytes,
            profile_key=None if booking is None else booking.profile_key,
            smact=None if booking is None else booking.smact,
            restart=job.restart,
            server="" if job.whole or job.load.turns else job.load.server,
        )
        placement = choose_gpu(
            [self._reading(gpu, now_s) for gpu in gpus],
            self._ledger,
            demand,
            cluster.settings,
            pin=cluster.pin,
            now_s=now_s,
            window_s=self._window_s,
            owners={run.job.number: run.job.number for gpu in gpus for run in gpu.runs},
        )
        if placement.gpus:
            self._reserve(demand, placement, now_s)
        return placement

    def release(self, job: SimulatedJob) -> None:
        """Remove a finished job from the ledger."""
        self._ledger = self._ledger.release(job.number, restart=job.restart)

    def _reserve(self, demand: Demand, placement: Placement, now_s: float) -> None:
        booked_bytes = demand.booked_bytes if demand.kind == "shared" else None
        self._ledger = self._ledger.reserve(
            Allocation(
                job_id=demand.job_id,
                user_id=demand.user_id,
                kind=demand.kind,
                gpus=placement.gpus,
                gpu_indices=demand.gpu_indices,
                booked_bytes=booked_bytes or self._cluster.memory_bytes,
                created_s=now_s,
                estimate_bytes=demand.estimate_bytes,
                cap_bytes=placement.cap_bytes,
                profile_key=demand.profile_key,
                smact=demand.smact,
                restart=demand.restart,
                server=demand.server,
            ),
            self._usable_bytes,
        )

    def _reading(self, gpu: SimulatedGpu, now_s: float) -> GpuReading:
        return GpuReading(
            uuid=gpu.uuid,
            index=gpu.index,
            name="simulated",
            memory_total_bytes=self._cluster.memory_bytes,
            memory_used_bytes=gpu.used_bytes,
            time_s=now_s,
            smact=gpu.window_smact(now_s, self._window_s),
            smact_source="simulated",
            processes=tuple(
                GpuProcess(pid=run.job.number, memory_bytes=run.job.peak_bytes) for run in gpu.runs
            ),
        )
