"""One node's GPUs as they really are: who is on them, memory, activity; jobs are placed by the production code."""

from __future__ import annotations

import math
from collections import deque

from slurm_plugin.admin.simulate.interference import Load, slowdowns, together
from slurm_plugin.admin.simulate.jobs import PARTITION, Job
from slurm_plugin.core.config import Config
from slurm_plugin.core.gpu import GpuProcess, GpuReading
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.core.placement import Pin, choose_gpu
from slurm_plugin.core.records import BookingKind, Demand, Placement, Reservation
from slurm_plugin.monitor.usage import SPARE, UNTOLD

STARTS_UP = Load(smact=0.0, busy=0.0)
"""What a job does to its GPU before its first step."""


class Gpu:
    """One physical GPU.

    Attributes:
        index: Its number in the cluster.
        uuid: Its name.
        jobs: Who runs on it.
        smact: Its activity now.
        used_bytes: Memory in use.
        changed_s: When jobs were last moved forward.
        busy_s: Integral of the activity.
        held_s: Time during which anybody was on it.
        learns: Whether what it shows of each job's activity is kept.
    """

    __slots__ = (
        "_trail",
        "busy_s",
        "changed_s",
        "held_s",
        "index",
        "jobs",
        "learns",
        "smact",
        "used_bytes",
        "uuid",
    )

    def __init__(self, index: int) -> None:
        """Start idle."""
        self.index, self.uuid = index, f"GPU-{index}"
        self.jobs: list[Job] = []
        self.smact = self.busy_s = self.held_s = self.changed_s = 0.0
        self.used_bytes = 0
        self.learns = False
        self._trail: deque[tuple[float, float]] = deque()

    def advance(self, now_s: float) -> None:
        """Move its jobs' work forward to now."""
        passed_s = now_s - self.changed_s
        if passed_s > 0:
            self.busy_s += self.smact * passed_s
            self.held_s += passed_s * bool(self.jobs)
            if self.learns:
                self._tell(passed_s)
            for job in self.jobs:
                if job.held[0] == self.index and job.trains_s <= self.changed_s:
                    job.left_s -= passed_s * job.rate
        self.changed_s = now_s

    def _tell(self, passed_s: float) -> None:
        """Split the activity over the jobs by what is expected of each, as rad-monitor does (monitor/usage.py)."""
        if len(self.jobs) != 1 and self.smact >= SPARE:
            return
        weights = [max(0.01, _expected(job)) for job in self.jobs]
        for job, weight in zip(self.jobs, weights, strict=True):
            job.own_s += passed_s
            job.own_activity_s += passed_s * self.smact * weight / sum(weights)

    def settle(self, window_s: float) -> None:
        """Work out rates and activity after a change of who is on it."""
        loads = [job.load if job.trains_s <= self.changed_s else STARTS_UP for job in self.jobs]
        factors = slowdowns(loads)
        for job, factor in zip(self.jobs, factors, strict=True):
            job.rate = 1.0 / factor
        self.smact = together(loads, factors)
        self.used_bytes = sum(job.peak_bytes for job in self.jobs)
        self._trail.append((self.changed_s, self.busy_s))
        while len(self._trail) > 1 and self._trail[1][0] < self.changed_s - window_s:
            self._trail.popleft()

    def window_smact(self, now_s: float, window_s: float) -> float:
        """Return the mean activity of the last `window_s` seconds.

        Args:
            now_s: Seconds since the trace began.
            window_s: Length of the window.
        """
        begin_s = max(0.0, now_s - window_s)
        busy_s = self.busy_s + self.smact * (now_s - self.changed_s)
        before = (0.0, 0.0)
        trail = [*self._trail, (now_s, busy_s)]
        for at_s, total in trail:
            if at_s >= begin_s:
                span_s = at_s - before[0]
                share = (begin_s - before[0]) / span_s if span_s > 0 else 0.0
                at_begin = before[1] + share * (total - before[1])
                return (busy_s - at_begin) / (now_s - begin_s) if now_s > begin_s else self.smact
            before = (at_s, total)
        return self.smact

    def next_end_s(self) -> float | None:
        """Return when the first of its jobs ends, crashes or comes to its first step, if nothing changes."""
        return min((self._next_s(job) for job in self.jobs), default=None)

    def _next_s(self, job: Job) -> float:
        if job.trains_s > self.changed_s:
            return job.trains_s
        if job.held[0] != self.index:
            return math.inf
        end_s = self.changed_s + max(0.0, job.left_s) / job.rate if job.doomed_s is None else job.doomed_s
        return max(self.changed_s, min(end_s, job.slot_ends_s))


def _expected(job: Job) -> float:
    known = None if job.booking is None else job.booking.smact
    return UNTOLD if known is None else known


class Node:
    """The GPUs of one host and their ledger."""

    def __init__(self, gpus: list[Gpu], memory_bytes: int, server_bytes: int = 0) -> None:
        """Start with an empty ledger; an MPS server takes `server_bytes` of each GPU that is shared."""
        self.gpus, self.memory_bytes, self.ledger = gpus, memory_bytes, Ledger()
        self.server_bytes = server_bytes

    def place(self, job: Job, config: Config, pin: Pin, now_s: float) -> Placement:
        """Ask the production placement where a job goes, and book it there.

        Args:
            job: The job, with the seats that Slurm gave it.
            config: rad.toml.
            pin: Which GPUs it may get.
            now_s: Seconds since the trace began.
        """
        settings = config.partition(PARTITION)
        assert settings is not None
        window_s = float(config.telemetry.window_s)
        rooms = [gpu for gpu in self.gpus if gpu.index in job.seats] if pin == "slurm" else self.gpus
        readings = [self._reading(gpu, now_s, window_s) for gpu in rooms]
        owners = {held.number: held.number for gpu in rooms for held in gpu.jobs}
        booking = job.booking
        kind: BookingKind = "whole" if job.whole else "shared"
        demand = Demand(
            job_id=job.number,
            user_id=1000,
            kind=kind,
            gpus=job.gpus,
            booked_bytes=None if booking is None else booking.memory_bytes,
            seats=job.seats,
            estimate_bytes=None if booking is None else booking.estimate_bytes,
            cap_bytes=None if booking is None else booking.cap_bytes,
            smact=None if booking is None else booking.smact,
            restart=job.restart,
        )
        placement = choose_gpu(
            readings,
            self.ledger,
            demand,
            settings,
            pin=pin,
            now_s=now_s,
            window_s=window_s,
            owners=owners,
        )
        job.cap_bytes = placement.cap_bytes
        if placement.gpus:
            booked_bytes = demand.booked_bytes if not job.whole and demand.booked_bytes else self.memory_bytes
            self.ledger = self.ledger.reserve(
                Reservation(
                    job_id=job.number,
                    user_id=1000,
                    kind=kind,
                    gpus=placement.gpus,
                    seats=job.seats,
                    booked_bytes=booked_bytes,
                    created_s=now_s,
                    estimate_bytes=demand.estimate_bytes,
                    cap_bytes=placement.cap_bytes,
                    smact=demand.smact,
                    restart=job.restart,
                ),
                {gpu.uuid: self.memory_bytes for gpu in rooms},
            )
        return placement

    def _reading(self, gpu: Gpu, now_s: float, window_s: float) -> GpuReading:
        return GpuReading(
            uuid=gpu.uuid,
            index=gpu.index,
            name="simulated",
            memory_total_bytes=self.memory_bytes,
            memory_used_bytes=gpu.used_bytes + self.server_bytes * any(not job.whole for job in gpu.jobs),
            time_s=now_s,
            smact=gpu.window_smact(now_s, window_s),
            smact_source="simulated",
            processes=tuple(GpuProcess(pid=job.number, memory_bytes=job.peak_bytes) for job in gpu.jobs),
        )
