"""All GPUs of the cluster: who is on them, and when something happens there next."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence

from slurm_plugin.core.records.node import Placement
from slurm_plugin.guard.overruns import TOLERANCE_BYTES
from slurm_plugin.simulate.cluster import Cluster
from slurm_plugin.simulate.gpu import Gpu
from slurm_plugin.simulate.node import Node
from slurm_plugin.simulate.progress import Job, Run


def surprise(runs: Sequence[Run], room_bytes: int) -> Run | None:
    """Return whom the guard stops (guard/overruns.py): of those above their bookings the furthest above its estimate.

    Args:
        runs: Who is on one GPU.
        room_bytes: What they may have together.
    """
    staying = [run for run in runs if run.crashes_s is None]
    if sum(max(run.booked_bytes, run.job.peak_bytes) for run in staying) <= room_bytes:
        return None
    above = [run for run in staying if run.job.peak_bytes > run.booked_bytes + TOLERANCE_BYTES]
    return max(above, key=Run.above_estimate_bytes, default=None)


class Calendar:
    """When something happens on each GPU next. A new date for a GPU takes the place of its old one."""

    def __init__(self, gpus: int) -> None:
        """Start without dates."""
        self._dates: list[tuple[float, int, int]] = []
        self._versions = [0] * gpus

    def put(self, gpu: int, at_s: float) -> None:
        """Note the next date of a GPU.

        Args:
            gpu: Its number in the cluster.
            at_s: Seconds since the trace began; infinity leaves it without a date.
        """
        self._versions[gpu] += 1
        if at_s < math.inf:
            heapq.heappush(self._dates, (at_s, gpu, self._versions[gpu]))

    def next_s(self) -> float | None:
        """Return the first date. It may be one that was replaced: then nothing happens."""
        return self._dates[0][0] if self._dates else None

    def due(self, now_s: float) -> Iterator[int]:
        """Yield the GPUs whose date has come; new dates may be put meanwhile."""
        while self._dates and self._dates[0][0] <= now_s:
            _, gpu, version = heapq.heappop(self._dates)
            if version == self._versions[gpu]:
                yield gpu


class Hardware:
    """The GPUs, and the nodes that they are in.

    Attributes:
        gpus: All of them; those of node n are n * per_node and those behind it.
    """

    def __init__(self, cluster: Cluster, *, learns: bool = False) -> None:
        """Start with all of them idle; with `learns` what they show of each job's activity is kept."""
        self._cluster = cluster
        self._window_s = float(cluster.config.telemetry.window_s)
        self._caps = cluster.managed and cluster.settings.memory_cap
        self.gpus = [
            Gpu(index, cluster.interference, learns=learns)
            for index in range(cluster.nodes * cluster.per_node)
        ]
        self._nodes = [
            Node(self.gpus[first : first + cluster.per_node], cluster)
            for first in range(0, len(self.gpus), cluster.per_node)
        ]
        self._calendar = Calendar(len(self.gpus))

    def next_s(self) -> float | None:
        """Return when something happens next; None if nobody runs."""
        return self._calendar.next_s()

    def place(self, job: Job, seats: tuple[int, ...], now_s: float) -> Placement:
        """Return which GPUs RAD gives a job, booked in the node's ledger; none if it is put back.

        Args:
            job: The job that starts.
            seats: Where Slurm counts it.
            now_s: Seconds since the trace began.
        """
        return self._nodes[seats[0] // self._cluster.per_node].place(job, seats, now_s)

    def occupy(self, run: Run, now_s: float) -> None:
        """Put a run onto its GPUs, and see whether it will run out of memory.

        Args:
            run: The run that starts.
            now_s: Seconds since the trace began.
        """
        job = run.job
        room_bytes = self._cluster.memory_bytes - self._cluster.server_bytes * (not job.whole)
        self._advance(run, now_s)
        touched = set(run.gpus)
        for index in run.gpus:
            gpu = self.gpus[index]
            gpu.runs.append(run)
            if self._caps and not job.whole and job.peak_bytes > max(run.booked_bytes, run.cap_bytes or 0):
                run.runs_out(run.peaks_s)
                continue
            stopped = surprise(gpu.runs, room_bytes) if self._cluster.managed else None
            if stopped is not None:
                stopped.runs_out(run.peaks_s, stopped=True)
                touched.update(stopped.gpus)
            elif sum(other.job.peak_bytes for other in gpu.runs) > room_bytes:
                run.runs_out(run.peaks_s)
        self._settle(tuple(touched))

    def vacate(self, run: Run, now_s: float) -> None:
        """Take a run off its GPUs and out of the ledger.

        Args:
            run: The run that is over.
            now_s: Seconds since the trace began.
        """
        self._advance(run, now_s)
        for index in run.gpus:
            self.gpus[index].runs.remove(run)
        self._settle(run.gpus)
        if self._cluster.managed:
            self._nodes[run.seats[0] // self._cluster.per_node].release(run.job)

    def over(self, now_s: float) -> Iterator[Run]:
        """Yield the runs that are over; the caller vacates each one before it asks on."""
        for index in self._calendar.due(now_s):
            gpu = self.gpus[index]
            for beside in self._together((index,)):
                self.gpus[beside].advance(now_s)
            over = [run for run in gpu.runs if run.gpus[0] == index and run.is_over(now_s)]
            yield from over
            if not over:
                self._settle((index,))

    def _advance(self, run: Run, now_s: float) -> None:
        """Move the work on a run's GPUs, and on those that jobs have beside them, forward before rates change."""
        for index in self._together(run.gpus):
            self.gpus[index].advance(now_s)

    def _settle(self, indices: Sequence[int]) -> None:
        """Work rates out anew: what a job on several GPUs takes of each hangs on the slowest of them."""
        for index in indices:
            self.gpus[index].settle(self._window_s)
        together = self._together(indices)
        for index in together:
            if len(together) > 1:
                self.gpus[index].settle(self._window_s)
            self._calendar.put(index, self.gpus[index].next_s())

    def _together(self, indices: Sequence[int]) -> Sequence[int]:
        """Return these GPUs, and those that jobs on them have as well."""
        more = [gpu for index in indices for run in self.gpus[index].runs for gpu in run.gpus]
        return list(dict.fromkeys((*indices, *more)))
