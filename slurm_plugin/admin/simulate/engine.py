"""The events: submissions, starts, ends, crashes, put-backs and reruns, in the order in which they happen."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slurm_plugin.admin.simulate.jobs import PARTITION, Job, booked_shards
from slurm_plugin.admin.simulate.node import Gpu, Node
from slurm_plugin.admin.simulate.seats import Seats
from slurm_plugin.admin.simulate.waiting import Queue, Running
from slurm_plugin.core.config import Config
from slurm_plugin.core.placement import Pin
from slurm_plugin.core.records import Outcome
from slurm_plugin.core.recovery import next_attempt

FIRST_DELAY_S, LONGEST_DELAY_S = 10.0, 160.0
"""How long a job that was put back waits: each time twice as long."""
RERUN_S = 5.0
"""From a crash to when its rerun may start."""
REQUEUE_S = 121.0
"""Slurm's delay of a requeued job, which nobody clears for one that comes back of its own accord."""
SAVE_S = 120.0
"""A job in slots is told so long before its limit (examples/resume)."""
CRASH_S, CRASH_SHARE = 60.0, 0.05
"""Training reaches its peak in the first steps: a job too large crashes after a minute, sooner if it is short."""


@dataclass(slots=True)
class Result:
    """What a run showed.

    Attributes:
        jobs: All jobs, with their times.
        gpus: All GPUs, with the integrals of their activity.
        end_s: When the last job ended.
        crashes: Times that a job ran out of GPU memory.
        recoveries: Times that one was run again.
        failed: Jobs that were not run again.
        put_backs: Times that a job was put back into the queue.
        booked_byte_s: Integral of what shared jobs booked.
        used_byte_s: Integral of what they really took.
        limit_factor: A job may run so many times its limit: sharing gives that time back (core/more_time.py).
    """

    jobs: Sequence[Job]
    gpus: Sequence[Gpu]
    end_s: float = 0.0
    crashes: int = 0
    recoveries: int = 0
    failed: int = 0
    put_backs: int = 0
    booked_byte_s: float = 0.0
    used_byte_s: float = 0.0
    limit_factor: float = 1.0


@dataclass(slots=True)
class Cluster:
    """What the simulation runs on.

    Attributes:
        nodes: Number of nodes.
        per_node: GPUs of each.
        memory_bytes: Usable memory of a GPU.
        config: rad.toml.
        pin: Which rooms a job may get.
        managed: Whether RAD places the jobs; without it they run where Slurm's seats say.
        backfill_s: SchedulerParameters bf_interval; Slurm's default.
        kept: GPUs of each node that have no shards, for jobs with GPUs of their own.
        drain: Whether shared jobs go where they keep the GPU busy for the shortest time longer.
        server_bytes: What an MPS server takes of a GPU in use.
    """

    nodes: int
    per_node: int
    memory_bytes: int
    config: Config
    pin: Pin = "slurm"
    managed: bool = True
    backfill_s: float = 30.0
    kept: int = 0
    drain: bool = False
    server_bytes: int = 0


@dataclass(slots=True)
class _State:
    seats: Seats
    running: Running
    queue: Queue
    gpus: list[Gpu]
    nodes: list[Node]
    result: Result
    ends: list[tuple[float, int, int]] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    active: int = 0


class Engine:
    """One run."""

    def __init__(self, cluster: Cluster, jobs: Sequence[Job]) -> None:
        """Start with an empty cluster; `jobs` are in order of submission."""
        settings = cluster.config.partition(PARTITION)
        assert settings is not None
        self.cluster, self.settings = cluster, settings
        self.window_s = float(cluster.config.telemetry.window_s)
        count = cluster.nodes * cluster.per_node
        gpus = [Gpu(index) for index in range(count)]
        self.state = _State(
            seats=Seats(cluster.nodes, cluster.per_node, settings.shards, cluster.kept),
            running=Running(count),
            queue=Queue(drain=cluster.drain),
            gpus=gpus,
            nodes=[
                Node(
                    gpus[n * cluster.per_node : (n + 1) * cluster.per_node],
                    cluster.memory_bytes,
                    cluster.server_bytes,
                )
                for n in range(cluster.nodes)
            ],
            result=Result(
                jobs=jobs, gpus=gpus, limit_factor=settings.time_limit_factor if cluster.managed else 1.0
            ),
            versions=[0] * count,
        )
        self.arrivals = list(reversed(jobs))

    def run(self, progress: Callable[[int], None] = lambda done: None) -> Result:
        """Run until every job has ended.

        Args:
            progress: Told how many more jobs have ended.
        """
        state, queue = self.state, self.state.queue
        changed = False
        next_backfill_s = 0.0
        while True:
            times = [self.arrivals[-1].trace.submit_s] if self.arrivals else []
            if state.ends:
                times.append(state.ends[0][0])
            wake_s = queue.next_wake_s()
            if wake_s is not None:
                times.append(wake_s)
            if queue.waiting and changed:
                times.append(next_backfill_s)
            if not times:
                return state.result
            now_s = min(times)
            happened = self._submit(now_s) | queue.wake(now_s) | self._end(now_s, progress)
            if happened:
                changed = True
                self._start(now_s, backfill=False)
            if changed and now_s >= next_backfill_s:
                self._start(now_s, backfill=True)
                changed, next_backfill_s = False, now_s + self.cluster.backfill_s

    def _submit(self, now_s: float) -> bool:
        came = False
        while self.arrivals and self.arrivals[-1].trace.submit_s <= now_s:
            self.state.queue.add(self.arrivals.pop(), now_s)
            came = True
        return came

    def _start(self, now_s: float, *, backfill: bool) -> None:
        state = self.state
        for job in state.queue.passes(state.seats, state.running, now_s, backfill=backfill):
            state.queue.remove(job)
            places = self._places(job, now_s)
            if not places:
                job.restart += 1
                job.put_backs += 1
                state.result.put_backs += 1
                delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (job.put_backs - 1))
                job.eligible_s = now_s + delay_s
                state.queue.add(job, now_s)
                continue
            state.seats.take(job.seats, job.shards)
            state.running.add(job, now_s)
            job.held, job.start_s, job.trains_s = places, now_s, now_s + job.start_up_s
            job.slot_ends_s = now_s + max(1.0, job.limit_s - SAVE_S) if job.slotted else math.inf
            if job.first_start_s is None:
                job.first_start_s = now_s
            self._occupy(job, now_s)

    def _places(self, job: Job, now_s: float) -> tuple[int, ...]:
        """Return the GPUs that a job gets; none if it is put back."""
        if not self.cluster.managed:
            return job.seats
        node = self.state.nodes[job.seats[0] // self.cluster.per_node]
        placement = node.place(job, self.cluster.config, self.cluster.pin, now_s)
        return tuple(int(uuid.removeprefix("GPU-")) for uuid in placement.gpus)

    def _occupy(self, job: Job, now_s: float) -> None:
        """Put a job onto its GPUs, and see whether it will run out of memory."""
        booking = job.booking
        cap_bytes = None
        if self.cluster.managed and self.settings.memory_cap and not job.whole and booking is not None:
            cap_bytes = max(booking.memory_bytes or 0, job.cap_bytes or 0)
        for index in job.held:
            gpu = self.state.gpus[index]
            gpu.advance(now_s)
            gpu.jobs.append(job)
            taken_bytes = sum(other.peak_bytes for other in gpu.jobs)
            full = taken_bytes > self.cluster.memory_bytes - self.cluster.server_bytes * (not job.whole)
            if full or (cap_bytes is not None and job.peak_bytes > cap_bytes):
                job.doomed_s = job.trains_s + min(CRASH_S, CRASH_SHARE * job.trace.duration_s)
        for index in job.held:
            self._changed(self.state.gpus[index])

    def _changed(self, gpu: Gpu) -> None:
        gpu.settle(self.window_s)
        self.state.versions[gpu.index] += 1
        end_s = gpu.next_end_s()
        if end_s is not None and end_s < math.inf:
            heapq.heappush(self.state.ends, (end_s, gpu.index, self.state.versions[gpu.index]))

    def _end(self, now_s: float, progress: Callable[[int], None]) -> bool:
        state, ended = self.state, False
        while state.ends and state.ends[0][0] <= now_s:
            _, index, version = heapq.heappop(state.ends)
            if version != state.versions[index]:
                continue
            gpu = state.gpus[index]
            gpu.advance(now_s)
            over = [
                job
                for job in gpu.jobs
                if job.held[0] == index
                and job.trains_s <= now_s
                and (
                    job.slot_ends_s <= now_s
                    or (job.left_s <= 1e-6 if job.doomed_s is None else job.doomed_s <= now_s)
                )
            ]
            for job in over:
                ended = True
                self._leave(job, now_s)
                if job.left_s > 1e-6 and (job.doomed_s is None or job.doomed_s > now_s):
                    self._next_slot(job, now_s)
                elif job.doomed_s is None:
                    job.end_s = state.result.end_s = now_s
                    progress(1)
                else:
                    self._crashed(job, now_s, progress)
            if not over:
                self._changed(gpu)
        return ended

    def _leave(self, job: Job, now_s: float) -> None:
        state = self.state
        if not job.whole and job.booking is not None and job.booking.memory_bytes:
            span_s = now_s - job.start_s
            state.result.booked_byte_s += job.booking.memory_bytes * span_s
            state.result.used_byte_s += job.peak_bytes * span_s
        for index in job.held:
            gpu = state.gpus[index]
            gpu.advance(now_s)
            gpu.jobs.remove(job)
        for index in job.held:
            self._changed(state.gpus[index])
        state.seats.give_back(job.seats, job.shards)
        state.running.remove(job)
        if self.cluster.managed:
            node = state.nodes[job.seats[0] // self.cluster.per_node]
            node.ledger = node.ledger.release(job.number, restart=job.restart)

    def _next_slot(self, job: Job, now_s: float) -> None:
        """Put a job back that saved at the end of its slot: behind those who wait."""
        job.doomed_s = None
        job.ran_s += now_s - job.start_s
        job.restart += 1
        job.queued_s = now_s
        job.eligible_s = now_s + REQUEUE_S
        self.state.queue.add(job, now_s)

    def _crashed(self, job: Job, now_s: float, progress: Callable[[int], None]) -> None:
        """Recover a job that ran out of memory, as the epilog would."""
        result = self.state.result
        result.crashes += 1
        job.crashes += 1
        job.lost_s += now_s - job.start_s
        job.doomed_s = None
        recovery = None
        if self.cluster.managed and job.booking is not None:
            had_bytes = job.booking.memory_bytes or self.cluster.memory_bytes
            outcome = Outcome(
                kind="gpu-oom",
                pattern="simulated",
                peak_bytes=min(job.peak_bytes, had_bytes),
                attempted_bytes=max(0, job.peak_bytes - had_bytes),
                corroborated=True,
            )
            recovery = next_attempt(job.booking, outcome, self.settings)
        if recovery is None:
            result.failed += 1
            job.end_s = result.end_s = now_s
            progress(1)
            return
        result.recoveries += 1
        job.booking = recovery.booking
        job.shards = booked_shards(recovery.booking, self.settings)
        job.priority = max(job.priority, int(recovery.lend_priority))
        job.restart += 1
        job.left_s = job.trace.duration_s
        job.eligible_s = now_s + RERUN_S
        self.state.queue.add(job, now_s)
