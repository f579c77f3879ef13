"""Process the events in order: submissions, starts, ends, crashes, requeues and reruns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from slurm_plugin.simulate.aftermath import WaitingReruns, recovers, requeue, saved
from slurm_plugin.simulate.cluster import SimulatedCluster
from slurm_plugin.simulate.gpus.hardware import Hardware
from slurm_plugin.simulate.progress import SimulatedJob, SimulatedRun
from slurm_plugin.simulate.result import Result
from slurm_plugin.simulate.slurm.controller import Controller

SAVE_S = 120.0
"""Warning time before a slot's limit (examples/resume)."""


class Engine:
    """One simulation: Slurm's view of the cluster, the actual state of the GPUs, and the results so far."""

    def __init__(self, cluster: SimulatedCluster, jobs: Sequence[SimulatedJob]) -> None:
        """Start with an empty cluster; jobs are in order of submission."""
        self._cluster = cluster
        self.slurm = Controller(cluster)
        self.hardware = Hardware(cluster)
        limit_factor = cluster.settings.time_limit_factor if cluster.managed else 1.0
        self.result = Result(jobs=jobs, gpus=self.hardware.gpus, limit_factor=limit_factor)
        self._arrivals = list(reversed(jobs))
        self._waiting = WaitingReruns()

    def run(self, progress: Callable[[int], None] = lambda done: None) -> Result:
        """Run until every job has ended.

        Slurm's main scheduler examines the queue at every event, its backfill every `backfill_s` if anything has
        happened since.

        Args:
            progress: Called with the number of jobs that have ended since the last call.
        """
        changed, backfill_s = False, 0.0
        while (now_s := self._next_s(backfill_s if changed else math.inf)) < math.inf:
            if self._submit(now_s) | self.slurm.queue.wake(now_s) | self._end(now_s, progress):
                changed = True
                self._start(now_s, backfill=False)
            if changed and now_s >= backfill_s:
                self._start(now_s, backfill=True)
                changed, backfill_s = False, now_s + self._cluster.backfill_s
        return self.result

    def _next_s(self, backfill_s: float) -> float:
        """Return the time of the next event; infinity once every job has ended."""
        times = (
            self._arrivals[-1].trace.submit_s if self._arrivals else None,
            self.hardware.next_s(),
            self.slurm.queue.next_wake_s(),
            backfill_s if self.slurm.queue else None,
        )
        return min((at_s for at_s in times if at_s is not None), default=math.inf)

    def _submit(self, now_s: float) -> bool:
        came = False
        while self._arrivals and self._arrivals[-1].trace.submit_s <= now_s:
            self.slurm.queue.add(self._arrivals.pop(), now_s)
            came = True
        return came

    def _start(self, now_s: float, *, backfill: bool) -> None:
        for job, gpu_indices in self.slurm.passes(now_s, backfill=backfill):
            gpus, cap_bytes = gpu_indices, None
            if self._cluster.managed:
                placement = self.hardware.place(job, gpu_indices, now_s)
                gpus = tuple(int(uuid.removeprefix("GPU-")) for uuid in placement.gpus)
                cap_bytes = placement.cap_bytes
            if not gpus:
                self._requeue(job, gpu_indices, now_s)
                continue
            self._waiting.end(job)
            run = SimulatedRun(
                job=job,
                gpu_indices=gpu_indices,
                gpus=gpus,
                start_s=now_s,
                trains_s=now_s + job.start_up_s,
                cap_bytes=cap_bytes,
                saves_s=now_s + max(1.0, job.limit_s - SAVE_S) if job.slotted else math.inf,
            )
            if job.first_start_s is None:
                job.first_start_s = now_s
            self.slurm.started(run)
            self.hardware.occupy(run, now_s)

    def _requeue(self, job: SimulatedJob, gpu_indices: tuple[int, ...], now_s: float) -> None:
        least_s = self._cluster.requeue_s
        requeue(job, now_s, least_s)
        self.result.requeues += 1
        self.slurm.queue.add(job, now_s)
        self._waiting.begin(gpu_indices[0] // self._cluster.per_node, job, now_s + least_s)

    def _end(self, now_s: float, progress: Callable[[int], None]) -> bool:
        ended = False
        for run in self.hardware.over(now_s):
            ended = True
            self.hardware.vacate(run, now_s)
            self.slurm.ended(run)
            self.result.count(run, now_s)
            self._wake(run, now_s)
            if self._comes_back(run, now_s):
                self.slurm.queue.add(run.job, now_s)
            else:
                run.job.end_s = self.result.end_s = now_s
                progress(1)
        return ended

    def _wake(self, run: SimulatedRun, now_s: float) -> None:
        woken = self._waiting.wake(run.gpu_indices[0] // self._cluster.per_node)
        if woken is not None:
            job, earliest_s = woken
            self.slurm.queue.sooner(job, max(now_s, earliest_s))

    def _comes_back(self, run: SimulatedRun, now_s: float) -> bool:
        """Return whether a job is requeued after a run, and prepare it for that."""
        job = run.job
        if run.has_crashed(now_s):
            self.result.crashes += 1
            job.crashes += 1
            self.result.stopped += run.stopped
            self.result.hurt += job.peak_bytes <= run.booked_bytes
            if not recovers(run, self._cluster, now_s):
                self.result.failed += 1
                job.ran_s += job.last_run_s
                return False
            self.result.recoveries += 1
            return True
        if run.is_done:
            return False
        saved(job, now_s)
        return True
