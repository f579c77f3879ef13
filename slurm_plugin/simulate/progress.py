"""State of a job in the simulation, and of its current run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from slurm_plugin.core.records.submission import Booking
from slurm_plugin.simulate.gpus.interference import Load
from slurm_plugin.simulate.traces.job import TraceJob
from slurm_plugin.simulate.traces.users import FIRST_USER_ID

DONE_S = 1e-6
"""Remaining work below this counts as none: times are sums of floats."""
CRASH_S, CRASH_SHARE = 60.0, 0.05
"""Training reaches its peak in the first steps: a job that is too large crashes after a minute, sooner if short."""


@dataclass(slots=True, eq=False, kw_only=True)
class SimulatedJob:
    """One job: its submission, its state and its history.

    Attributes:
        trace: Its line of the trace.
        load: Its load on a GPU.
        peak_bytes: Its actual peak of GPU memory on each GPU.
        limit_s: Its time limit.
        gpus: GPUs it requests.
        user_id: Its user.
        start_up_s: Time from each start to the first step, for imports and building the model.
        slotted: Whether it runs in time slots: at the end of each it saves and is requeued.
        booking: Its booking; None if RAD leaves it unchanged.
        shards: Shards that Slurm counts on each GPU: all of a GPU for a whole one.
        priority: Slurm's priority; higher starts sooner.
        eligible_s: When Slurm first considers it.
        queued_s: When it entered the queue, for its age there.
        restart: Number of its requeues.
        left_s: Remaining work, in seconds alone on a GPU.
        first_start_s: When it first started.
        end_s: When it finally ended.
        ran_s: Total time of its runs, without those that crashed.
        last_run_s: Time of the last run.
        crashes: Times that it ran out of GPU memory.
        requeues: Times that it was requeued before it ran.
    """

    trace: TraceJob
    load: Load
    peak_bytes: int
    limit_s: float
    gpus: int
    user_id: int = FIRST_USER_ID
    start_up_s: float
    slotted: bool
    booking: Booking | None
    shards: int
    priority: int = 0
    eligible_s: float
    queued_s: float
    restart: int = 0
    left_s: float
    first_start_s: float | None = None
    end_s: float | None = None
    ran_s: float = 0.0
    last_run_s: float = 0.0
    crashes: int = 0
    requeues: int = 0

    @property
    def number(self) -> int:
        """Return its number in the trace."""
        return self.trace.number

    @property
    def key(self) -> tuple[int, float, int]:
        """Return its sort key in the queue: priority, then age."""
        return (-self.priority, self.queued_s, self.trace.number)

    @property
    def whole(self) -> bool:
        """Return whether it has dedicated GPUs."""
        return self.booking is None or self.booking.kind == "whole"


@dataclass(slots=True, eq=False, kw_only=True)
class SimulatedRun:
    """One run of a job, from its start until it leaves its GPUs.

    Attributes:
        job: The job.
        gpu_indices: GPU indices that Slurm assigned.
        gpus: Physical GPUs it runs on.
        start_s: When it started.
        trains_s: When it reaches its first step.
        cap_bytes: Its memory limit on a GPU; None if that is its booking.
        saves_s: When its slot ends: it saves and leaves. Never for a job without slots.
        crashes_s: When it runs out of memory, or is stopped; None if neither.
        stopped: Whether the guard stops it, because it uses more than it booked and other jobs need what they booked.
        factors: Slowdown on each GPU, relative to running alone.
    """

    job: SimulatedJob
    gpu_indices: tuple[int, ...]
    gpus: tuple[int, ...]
    start_s: float
    trains_s: float
    cap_bytes: int | None = None
    saves_s: float = math.inf
    crashes_s: float | None = None
    stopped: bool = False
    factors: dict[int, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Return the work done in a second, 1 alone; a job on several GPUs is as slow as on the slowest."""
        return 1.0 / max(self.factors.values(), default=1.0)

    @property
    def booked_bytes(self) -> int:
        """Return its booking; 0 without one, or with dedicated GPUs."""
        return 0 if self.job.booking is None else self.job.booking.memory_bytes or 0

    def above_estimate_bytes(self) -> int:
        """Return how far its usage is above its estimate."""
        estimate_bytes = None if self.job.booking is None else self.job.booking.estimate_bytes
        return self.job.peak_bytes - min(estimate_bytes or self.booked_bytes, self.booked_bytes)

    @property
    def peaks_s(self) -> float:
        """Return when it reaches its peak."""
        return self.trains_s + min(CRASH_S, CRASH_SHARE * self.job.trace.duration_s)

    def runs_out(self, at_s: float, *, stopped: bool = False) -> None:
        """Record that it ends before its work is done.

        Args:
            at_s: When.
            stopped: Whether the guard stops it; else it requests more memory than there is.
        """
        self.crashes_s, self.stopped = at_s, stopped

    def next_s(self, now_s: float) -> float:
        """Return when it reaches its first step, saves, ends or crashes, if its rate stays.

        Args:
            now_s: Seconds since the trace began; its work is counted up to now.
        """
        if self.trains_s > now_s:
            return self.trains_s
        end_s = now_s + max(0.0, self.job.left_s) / self.rate if self.crashes_s is None else self.crashes_s
        return max(now_s, min(end_s, self.saves_s))

    def is_over(self, now_s: float) -> bool:
        """Return whether it leaves its GPUs now."""
        if self.trains_s > now_s:
            return False
        return self.saves_s <= now_s or self.is_done or self.has_crashed(now_s)

    @property
    def is_done(self) -> bool:
        """Return whether its work is done."""
        return self.crashes_s is None and self.job.left_s <= DONE_S

    def has_crashed(self, now_s: float) -> bool:
        """Return whether it has run out of memory."""
        return self.crashes_s is not None and self.crashes_s <= now_s
