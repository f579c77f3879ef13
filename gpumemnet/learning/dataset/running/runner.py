"""Run many configurations at once on one GPU: restartable, time-limited, each result stored at once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any

from gpumemnet.learning.dataset.running.admission import WaitingRun, admit
from gpumemnet.learning.dataset.running.child import MeasurementJob, run_child
from gpumemnet.learning.dataset.running.children import MeasuredGpu, TrainingChild
from gpumemnet.learning.dataset.running.job_queue import JobQueue
from gpumemnet.learning.dataset.running.need import reservation
from gpumemnet.learning.dataset.running.progress import Progress
from gpumemnet.units import GIB, MIB

STATE_LIMIT_S = 30.0
"""A run that trains longer is stored as a timeout."""
LAST_START_S = 10.0
"""Seconds before the end in which no run is started."""
RUNS_PER_PROCESS = 40
QUEUE = 12
"""Maximum number of waiting children with known rough need, for a good mix of large and small."""
CONTEXT_BYTES = 800 * MIB
"""Memory of a waiting process that has run a job before."""
TICK_S = 0.01
SAMPLE_S = 0.03
"""Interval between NVML readings: a run lasts a second or more, and its memory only grows."""
SKIP_ABOVE = 1.25
"""Configurations with a rough need above the GPU's memory by this factor are skipped, except one in EXAMPLES."""
EXAMPLES = 8


class Runner:
    """Main loop: keep children busy, let up to `slots` of them train as memory permits, sample NVML, store."""

    def __init__(
        self,
        jobs: Iterable[MeasurementJob],
        gpu: MeasuredGpu,
        store: Callable[[dict[str, Any]], None],
        *,
        slots: int,
        stop_at_s: float,
        device: str = "cuda:0",
    ) -> None:
        self.queue = JobQueue(jobs)
        self.gpu, self.store, self.slots, self.stop_at_s, self.device = gpu, store, slots, stop_at_s, device
        self.children: dict[int, TrainingChild] = {}
        self.counts: Counter[str] = Counter()
        self.capacity = gpu.usable_bytes() - int(1.0 * GIB)
        self.progress = Progress(time.monotonic(), stop_at_s)
        self.sampled_s = 0.0

    def run(self) -> Counter[str]:
        """Run until the jobs or the time are used up; return the counts of outcomes."""
        try:
            while (now := time.monotonic()) < self.stop_at_s:
                if now < self.stop_at_s - LAST_START_S:
                    self._spawn(now)
                if not self.children:
                    break
                self._listen()
                self._reap()
                self._sample(time.monotonic())
                self._grant(time.monotonic())
                self._end_late(time.monotonic())
                self._show()
        finally:
            for child in list(self.children.values()):
                if child.state != "ending":
                    self._end(child)
            self._reap(wait_for_all=True)
            self._show(last=True)
        return self.counts

    def _spawn(self, now: float) -> None:
        waiting = sum(not child.training for child in self.children.values())
        while waiting < QUEUE and len(self.children) < self.slots + QUEUE:
            job = self.queue.take()
            if job is None:
                return
            here, there = Pipe()
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if pid == 0:
                here.close()
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                run_child(there, self.device)
            there.close()
            self.children[pid] = TrainingChild(
                pid=pid, pipe=here, job=job, libraries=job.libraries(), since_s=now
            )
            here.send(job)
            waiting += 1

    def _listen(self) -> None:
        by_pipe = {child.pipe: child for child in self.children.values() if child.state != "ending"}
        if not by_pipe:
            time.sleep(TICK_S)
            return
        for pipe in wait(list(by_pipe), TICK_S):
            child = by_pipe[pipe]  # type: ignore[index]
            try:
                message = child.pipe.recv()
            except (EOFError, ConnectionResetError):
                self._gone(child)
                continue
            self._receive(child, message)

    def _receive(self, child: TrainingChild, message: dict[str, Any]) -> None:
        kind = message.pop("say")
        if kind == "ready":
            self._ready(child, message["need_bytes"])
        elif kind == "idle":
            self._next(child)
        elif kind == "steady":
            self.gpu.begin_activity()
        elif kind == "texts":
            assert child.row is not None
            self._finish(child, child.row | message)
        else:
            self._result(child, message)

    def _ready(self, child: TrainingChild, need_bytes: int) -> None:
        too_big = need_bytes > SKIP_ABOVE * self.capacity
        config = child.job.config
        if too_big and config.family != "real" and config.index % EXAMPLES:
            self._keep(child, {"outcome": "skipped", "rough_need_bytes": need_bytes})
            self._end(child)
            return
        child.state, child.since_s = "ready", time.monotonic()
        child.reserved_bytes = min(reservation(need_bytes), self.capacity)

    def _next(self, child: TrainingChild) -> None:
        """Give an idle child its next job, or end it."""
        now = time.monotonic()
        late = now >= self.stop_at_s - LAST_START_S
        done = child.libraries == "fresh" or child.runs_before + 1 >= RUNS_PER_PROCESS or late
        job = None if done else self.queue.take(child.libraries)
        if job is None:
            self._end(child)
            return
        child.job, child.state, child.since_s = job, "estimating", now
        child.reserved_bytes, child.peak_bytes, child.neighbours, child.row = 0, None, 0, None
        child.runs_before += 1
        child.pipe.send(job)

    def _result(self, child: TrainingChild, row: dict[str, Any]) -> None:
        if child.job.busy_s and row["outcome"] == "ok":
            child.activity = self.gpu.end_activity()
        end_bytes = self.gpu.processes().get(child.pid)
        crowded = row["outcome"] == "oom" and child.neighbours > 0
        if crowded and not child.job.alone:
            # Its neighbours may be the reason: run it again alone.
            self.queue.return_job(replace(child.job, alone=True))
            self.counts["crowded"] += 1
            self._end(child)
            return
        row |= {
            "process_end_bytes": end_bytes,
            "process_sampled_peak_bytes": child.peak_bytes,
            "neighbours": child.neighbours,
            "alone": child.job.alone,
            "runs_before": child.runs_before,
            **child.activity,
        }
        if row["outcome"] == "ok" and end_bytes is not None:
            row["process_peak_bytes"] = max(end_bytes, child.peak_bytes or 0)
            row["base_bytes"] = end_bytes - row["reserved_end_bytes"]
        elif row["outcome"] == "oom":
            row["need_above_bytes"] = max(end_bytes or 0, child.peak_bytes or 0)
        if child.job.texts and row["outcome"] == "ok":
            child.row, child.state = row, "texts"
            child.pipe.send("go")
            return
        self._finish(child, row)

    def _keep(self, child: TrainingChild, row: dict[str, Any]) -> None:
        self.counts[row["outcome"]] += 1
        self.store(child.job.config.to_json() | row)

    def _finish(self, child: TrainingChild, row: dict[str, Any]) -> None:
        """Store the result and let the child clean up, or end it if it failed."""
        self._keep(child, row)
        if row["outcome"] == "ok":
            child.state, child.since_s = "cleaning", time.monotonic()
            child.pipe.send("go")
        else:
            self._end(child)

    def _gone(self, child: TrainingChild) -> None:
        """Record a child that ended by itself: after its work, or by a signal or a driver fault."""
        if child.state != "cleaning":
            self._keep(child, child.row or {"outcome": "error", "error": f"ended in state {child.state}"})
        self._end(child)

    def _end(self, child: TrainingChild) -> None:
        """Kill a child; the driver needs time to free its memory, so it stays listed until it is gone."""
        os.kill(child.pid, signal.SIGKILL)
        child.pipe.close()
        child.state = "ending"

    def _reap(self, *, wait_for_all: bool = False) -> None:
        for child in list(self.children.values()):
            if child.state == "ending" and os.waitpid(child.pid, 0 if wait_for_all else os.WNOHANG)[0]:
                del self.children[child.pid]

    def _sample(self, now: float) -> None:
        if now - self.sampled_s < SAMPLE_S:
            return
        self.sampled_s = now
        used = self.gpu.processes()
        for child in self.children.values():
            if child.state == "training" and child.pid in used:
                child.peak_bytes = max(used[child.pid], child.peak_bytes or 0)

    def _grant(self, now: float) -> None:
        waiting = [
            WaitingRun(key=c.pid, bytes_wanted=c.reserved_bytes, alone=c.job.alone, since_s=c.since_s)
            for c in self.children.values()
            if c.state == "ready"
        ]
        if not waiting:
            return
        training = [c for c in self.children.values() if c.training or c.state == "cleaning"]
        used = sum(max(c.reserved_bytes, c.peak_bytes or 0) for c in training)
        contexts = CONTEXT_BYTES * sum(
            c.runs_before > 0 and c not in training for c in self.children.values()
        )
        running = [-1 if c.job.alone else c.reserved_bytes for c in training]
        admitted = admit(waiting, running, self.capacity - used - contexts, now)
        for pid in admitted[: max(0, self.slots - len(training))]:
            child = self.children[pid]
            child.state, child.since_s = "training", now
            for other in training:
                other.neighbours += 1
            child.neighbours = len(training)
            training.append(child)
            child.pipe.send("go")

    def _end_late(self, now: float) -> None:
        for child in list(self.children.values()):
            if (
                child.state in ("training", "texts", "estimating", "cleaning")
                and now - child.since_s > STATE_LIMIT_S
            ):
                if child.state != "cleaning":
                    error = f"no end of {child.state} after {STATE_LIMIT_S:.0f} s"
                    self._keep(child, child.row or {"outcome": "timeout", "error": error})
                self._end(child)

    def _show(self, *, last: bool = False) -> None:
        states = [child.state for child in self.children.values()]
        self.progress.show(time.monotonic(), self.counts, states, last=last)
