"""The monitor's sampling: read the GPUs, update the jobs' records, and write the results where hooks find them."""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.store import LedgerStore
from slurm_plugin.core.process.identity import cpu_s
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.attribution import JobFinder, Traced
from slurm_plugin.monitor.gpus.telemetry import Telemetry
from slurm_plugin.monitor.node_state import NodeState
from slurm_plugin.monitor.usage import add_readings
from slurm_plugin.monitor.window import (
    JobUsage,
    forget_job,
    read_job,
    recorded_jobs,
    write_job,
    write_window,
)

log = logging.getLogger("rad-monitor")

KEPT_S = 24 * 3600.0
"""A record whose job was not seen for a day had no Epilog."""


Idle = Callable[[Ledger, Mapping[int, JobUsage]], Mapping[int, float]]


class Exporter(Protocol):
    """Something that exports the results (metrics.py)."""

    def show(self, seen: NodeState) -> None:
        """Take over the state after one sample."""
        ...


class SampleJudge(Protocol):
    """Something that judges a sample (guard/watch.py)."""

    def look(
        self,
        readings: Sequence[GpuReading],
        ledger: Ledger,
        traced: Mapping[int, Traced],
        usages: Mapping[int, JobUsage],
    ) -> None:
        """Judge one sample; raises OSError where something cannot be written down.

        Args:
            readings: One of each GPU, ordered by index.
            ledger: The allocations.
            traced: What is known of each GPU process, by its pid.
            usages: Usage of each job until the sample before.
        """
        ...


class Monitor:
    """The state between two samples."""

    def __init__(
        self,
        telemetry: Telemetry,
        run: Path,
        *,
        clock: Clock,
        window_s: int = 90,
        finder: JobFinder | None = None,
        store: LedgerStore | None = None,
        exporter: Exporter | None = None,
        guard: SampleJudge | None = None,
        guarded: Sequence[str] = (),
        sliced: Collection[str] = (),
        settings: str = "",
        idle: Idle = lambda _ledger, _usages: {},
    ) -> None:
        """Load the records of an earlier monitor.

        Args:
            telemetry: Reads the GPUs.
            run: paths.run.
            clock: Time.
            window_s: Length of the window.
            finder: Finds the jobs of processes.
            store: The node's ledger, which has the users of jobs; None believes every process.
            exporter: Exports metrics; None exports none.
            guard: Detects jobs that use more than they booked; it needs the ledger.
            guarded: Partitions whose jobs it stops.
            sliced: Partitions whose jobs share GPUs by time slicing.
            settings: Its `in_use`.
            idle: Names the jobs that are idle.
        """
        self._telemetry = telemetry
        self._run = run
        self._clock = clock
        self._window_s = window_s
        self._finder = finder or JobFinder()
        self._store = store
        self._exporter = exporter
        self._guard = guard
        self._guarded = () if guard is None else tuple(guarded)
        self._sliced = frozenset(sliced)
        self._idle = idle
        self._settings = settings
        self._ring: dict[str, deque[tuple[float, float]]] = {}
        self._energy_j: dict[str, float] = {}
        found = (read_job(run, job_id) for job_id in recorded_jobs(run))
        self._usages = {usage.job_id: usage for usage in found if usage is not None}
        self._written = set(self._usages)
        self._bug = ""

    def sample(self) -> tuple[GpuReading, ...]:
        """Read once, and update the window and the records.

        Returns:
            The window's readings now.

        Raises:
            DeviceError: The GPUs cannot be read, or what was read cannot be written down.
        """
        readings = self._telemetry.read()
        now_s = self._clock.now_s()
        averaged = tuple(self._averaged(reading) for reading in readings)
        found = self._store.read() if self._store is not None else None
        ledger = None if found is None else found.ledger
        allocations = () if ledger is None else ledger.allocations
        users = (
            None if ledger is None else {allocation.job_id: allocation.user_id for allocation in allocations}
        )
        traced = self._finder.trace(readings, users=users)
        owners = {pid: one.job_id for pid, one in traced.items() if one.job_id is not None}
        guarded = self._guarded
        if self._guard is not None and found is not None and not found.lost:
            guarded = self._judge(self._guard, readings, found.ledger, traced)
        self._forget(now_s)
        used = add_readings(
            self._usages,
            readings,
            owners,
            energy_j=self._energy_since(readings),
            now_s=now_s,
            expected={
                allocation.job_id: allocation.smact
                for allocation in allocations
                if allocation.smact is not None
            },
            users=users or {},
            sliced={one.job_id for one in allocations if one.uncapped or one.partition in self._sliced},
            cpu_s={pid: cpu_s(pid) for pid in owners},
        )
        self._usages |= used
        if self._exporter is not None:
            shown = ledger or Ledger()
            seen = NodeState(
                readings=averaged,
                usages=dict(self._usages),
                owners=owners,
                ledger=shown,
                idle=self._idle(shown, self._usages),
            )
            self._exporter.show(seen)
        write_window(self._run, averaged, now_s=now_s, guarded=guarded, settings=self._settings)
        for usage in used.values():
            write_job(self._run, usage)
            self._written.add(usage.job_id)
        return averaged

    def shared_s(self, job_id: int) -> float:
        """Return how long a job has shared a GPU with another user's so far, in seconds. Safe in any thread."""
        usage = self._usages.get(job_id)
        return 0.0 if usage is None else usage.shared_s

    def _judge(
        self,
        guard: SampleJudge,
        readings: Sequence[GpuReading],
        ledger: Ledger,
        traced: Mapping[int, Traced],
    ) -> tuple[str, ...]:
        """Judge a sample before the window shows that it was taken: an Epilog may wait for that.

        Returns:
            Partitions whose jobs the guard stops where required; none after an error, so that nothing relies on it.
        """
        bug = ""
        try:
            guard.look(readings, ledger, traced, self._usages)
        except OSError as exc:
            log.error("the guard's incidents could not be written: %s", exc)
        except Exception as exc:
            bug = repr(exc)
            if bug != self._bug:
                log.exception("internal error in the guard; no job is checked until it works again")
        self._bug = bug
        return () if bug else self._guarded

    def _averaged(self, reading: GpuReading) -> GpuReading:
        now_s = self._clock.monotonic_s()
        ring = self._ring.setdefault(reading.uuid, deque())
        if reading.smact is not None:
            ring.append((now_s, reading.smact))
        while ring and ring[0][0] <= now_s - self._window_s:
            ring.popleft()
        if not ring:
            return reading
        return dataclasses.replace(reading, smact=sum(smact for _, smact in ring) / len(ring))

    def _energy_since(self, readings: Sequence[GpuReading]) -> dict[str, float]:
        counted = {r.uuid: r.counters.energy_j for r in readings if r.counters.energy_j is not None}
        before, self._energy_j = self._energy_j, counted
        return {uuid: max(0.0, now - before[uuid]) for uuid, now in counted.items() if uuid in before}

    def _forget(self, now_s: float) -> None:
        """Drop the records that an Epilog removed, and those that no Epilog ever will."""
        left = recorded_jobs(self._run)
        for job_id, usage in list(self._usages.items()):
            taken = job_id in self._written and job_id not in left
            if not taken and now_s - usage.last_s <= KEPT_S:
                continue
            del self._usages[job_id]
            self._written.discard(job_id)
            forget_job(self._run, job_id)
