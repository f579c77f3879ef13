"""Actual state of one GPU: its jobs, their speed, memory, activity."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

from slurm_plugin.simulate.gpus.interference import Load, slowdowns, together
from slurm_plugin.simulate.progress import SimulatedRun

STARTS_UP = Load(smact=0.0, busy=0.0)
"""Load of a job on its GPU before its first step."""


class SimulatedGpu:
    """One physical GPU.

    Attributes:
        index: Its number in the cluster.
        uuid: Its name.
        runs: The runs on it.
        smact: Its current activity.
        used_bytes: Memory in use.
        changed_s: When the jobs' work was last advanced.
        busy_s: Integral of the activity.
        used_s: Time during which any job was on it.
    """

    __slots__ = ("_trail", "busy_s", "changed_s", "index", "runs", "smact", "used_bytes", "used_s", "uuid")

    def __init__(self, index: int) -> None:
        """Start idle."""
        self.index, self.uuid = index, f"GPU-{index}"
        self.runs: list[SimulatedRun] = []
        self.smact = self.busy_s = self.used_s = self.changed_s = 0.0
        self.used_bytes = 0
        self._trail: deque[tuple[float, float]] = deque()

    def advance(self, now_s: float) -> None:
        """Advance the work of its jobs to now."""
        passed_s = now_s - self.changed_s
        if passed_s > 0:
            self.busy_s += self.smact * passed_s
            self.used_s += passed_s * bool(self.runs)
            for run in self.runs:
                if run.gpus[0] == self.index and run.trains_s <= self.changed_s:
                    run.job.left_s -= passed_s * run.rate
        self.changed_s = now_s

    def settle(self, window_s: float) -> None:
        """Compute rates and activity after a job has joined or left.

        Args:
            window_s: Length of the window of `window_smact`, in seconds.
        """
        loads = [self._load(run) for run in self.runs]
        factors = slowdowns(loads)
        for run, factor in zip(self.runs, factors, strict=True):
            run.factors[self.index] = factor
        self.smact = together(
            loads, [max(factor, load.elsewhere) for load, factor in zip(loads, factors, strict=True)]
        )
        self.used_bytes = sum(run.job.peak_bytes for run in self.runs)
        self._trail.append((self.changed_s, self.busy_s))
        while len(self._trail) > 1 and self._trail[1][0] < self.changed_s - window_s:
            self._trail.popleft()

    def _load(self, run: SimulatedRun) -> Load:
        """Return the load of a run on this GPU; its first GPU gathers its gradients."""
        load = run.job.load
        if run.trains_s > self.changed_s:
            return STARTS_UP
        if not load.turns:
            return load
        elsewhere = [factor for index, factor in run.factors.items() if index != self.index]
        exchanges_per_s = load.exchanges_per_s if run.gpus[0] == self.index else 0.0
        return replace(load, exchanges_per_s=exchanges_per_s, elsewhere=max(elsewhere, default=1.0))

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

    def next_s(self) -> float:
        """Return the time of its jobs' next event, if nothing changes; infinity on an idle GPU.

        A job on several GPUs has its events on the first one, except the start of its training, which each GPU reports.
        """
        return min((self._next_s(run) for run in self.runs), default=math.inf)

    def _next_s(self, run: SimulatedRun) -> float:
        due = run.gpus[0] == self.index or run.trains_s > self.changed_s
        return run.next_s(self.changed_s) if due else math.inf
