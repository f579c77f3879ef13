"""All GPUs of the cluster: their jobs, and the time of the next event."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence

from slurm_plugin.core.records.node import Placement
from slurm_plugin.guard.overruns import TOLERANCE_BYTES
from slurm_plugin.simulate.cluster import SimulatedCluster
from slurm_plugin.simulate.gpus.gpu import SimulatedGpu
from slurm_plugin.simulate.gpus.node import SimulatedNode
from slurm_plugin.simulate.progress import SimulatedJob, SimulatedRun


def overrunning(runs: Sequence[SimulatedRun], usable_bytes: int) -> SimulatedRun | None:
    """Return the run that the guard stops (guard/overruns.py): above its booking, and furthest above its estimate.

    Args:
        runs: The runs on one GPU.
        usable_bytes: What they may use together.
    """
    staying = [run for run in runs if run.crashes_s is None]
    if sum(max(run.booked_bytes, run.job.peak_bytes) for run in staying) <= usable_bytes:
        return None
    above = [run for run in staying if run.job.peak_bytes > run.booked_bytes + TOLERANCE_BYTES]
    return max(above, key=SimulatedRun.above_estimate_bytes, default=None)


class Calendar:
    """Time of the next event on each GPU. A new time replaces the GPU's old one."""

    def __init__(self, gpus: int) -> None:
        """Start without entries."""
        self._dates: list[tuple[float, int, int]] = []
        self._versions = [0] * gpus

    def put(self, gpu: int, at_s: float) -> None:
        """Set the time of a GPU's next event.

        Args:
            gpu: Its number in the cluster.
            at_s: Seconds since the trace began; infinity removes the entry.
        """
        self._versions[gpu] += 1
        if at_s < math.inf:
            heapq.heappush(self._dates, (at_s, gpu, self._versions[gpu]))

    def next_s(self) -> float | None:
        """Return the earliest time. It may have been replaced; then nothing happens."""
        return self._dates[0][0] if self._dates else None

    def due(self, now_s: float) -> Iterator[int]:
        """Yield the GPUs whose time has come; entries may be added meanwhile."""
        while self._dates and self._dates[0][0] <= now_s:
            _, gpu, version = heapq.heappop(self._dates)
            if version == self._versions[gpu]:
                yield gpu


class Hardware:
    """The GPUs and their nodes.

    Attributes:
        gpus: All of them; those of node n begin at n * per_node.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        """Start with all GPUs idle."""
        self._cluster = cluster
        self._window_s = float(cluster.config.telemetry.window_s)
        self._caps = cluster.managed and cluster.settings.memory_cap
        self.gpus = [SimulatedGpu(index) for index in range(cluster.nodes * cluster.per_node)]
        self._nodes = [
            SimulatedNode(self.gpus[first : first + cluster.per_node], cluster)
            for first in range(0, len(self.gpus), cluster.per_node)
        ]
        self._calendar = Calendar(len(self.gpus))

    def next_s(self) -> float | None:
        """Return the time of the next event; None if no job runs."""
        return self._calendar.next_s()

    def place(self, job: SimulatedJob, gpu_indices: tuple[int, ...], now_s: float) -> Placement:
        """Return the GPUs that RAD gives a job, booked in the node's ledger; none if it is requeued.

        Args:
            job: The job that starts.
            gpu_indices: GPU indices that Slurm assigned.
            now_s: Seconds since the trace began.
        """
        return self._nodes[gpu_indices[0] // self._cluster.per_node].place(job, gpu_indices, now_s)

    def occupy(self, run: SimulatedRun, now_s: float) -> None:
        """Start a run on its GPUs, and determine whether it will run out of memory.

        Args:
            run: The run that starts.
            now_s: Seconds since the trace began.
        """
        job, usable_bytes = run.job, self._cluster.memory_bytes
        self._advance(run, now_s)
        touched = set(run.gpus)
        for index in run.gpus:
            gpu = self.gpus[index]
            gpu.runs.append(run)
            if self._caps and not job.whole and job.peak_bytes > max(run.booked_bytes, run.cap_bytes or 0):
                run.runs_out(run.peaks_s)
                continue
            stopped = overrunning(gpu.runs, usable_bytes) if self._cluster.managed else None
            if stopped is not None:
                stopped.runs_out(run.peaks_s, stopped=True)
                touched.update(stopped.gpus)
            elif sum(other.job.peak_bytes for other in gpu.runs) > usable_bytes:
                run.runs_out(run.peaks_s)
        self._settle(tuple(touched))

    def vacate(self, run: SimulatedRun, now_s: float) -> None:
        """Remove a run from its GPUs and from the ledger.

        Args:
            run: The run that is over.
            now_s: Seconds since the trace began.
        """
        self._advance(run, now_s)
        for index in run.gpus:
            self.gpus[index].runs.remove(run)
        self._settle(run.gpus)
        if self._cluster.managed:
            self._nodes[run.gpu_indices[0] // self._cluster.per_node].release(run.job)

    def over(self, now_s: float) -> Iterator[SimulatedRun]:
        """Yield the runs that are over; the caller vacates each one before taking the next."""
        for index in self._calendar.due(now_s):
            gpu = self.gpus[index]
            for one in self._together((index,)):
                self.gpus[one].advance(now_s)
            over = [run for run in gpu.runs if run.gpus[0] == index and run.is_over(now_s)]
            yield from over
            if not over:
                self._settle((index,))

    def _advance(self, run: SimulatedRun, now_s: float) -> None:
        """Advance the work on a run's GPUs, and on the other GPUs of jobs there, before rates change."""
        for index in self._together(run.gpus):
            self.gpus[index].advance(now_s)

    def _settle(self, indices: Sequence[int]) -> None:
        """Recompute rates: the load of a job with several GPUs on each depends on the slowest of them."""
        for index in indices:
            self.gpus[index].settle(self._window_s)
        together = self._together(indices)
        for index in together:
            if len(together) > 1:
                self.gpus[index].settle(self._window_s)
            self._calendar.put(index, self.gpus[index].next_s())

    def _together(self, indices: Sequence[int]) -> Sequence[int]:
        """Return these GPUs and the other GPUs of jobs on them."""
        more = [gpu for index in indices for run in self.gpus[index].runs for gpu in run.gpus]
        return list(dict.fromkeys((*indices, *more)))
