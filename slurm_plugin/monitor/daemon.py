"""rad-monitor: reads every GPU of a node once a second and leaves what it saw where hooks find it.

It may be stopped and started at any time: nothing asks it, and each job's record goes on from its file.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

from slurm_plugin.core.clock import Clock, SystemClock
from slurm_plugin.core.config import DEFAULT_PATH, Config
from slurm_plugin.core.errors import ConfigError, DeviceError, LedgerError
from slurm_plugin.core.exits import Exit
from slurm_plugin.core.gpu import GpuReading
from slurm_plugin.core.last_good import config_in_force
from slurm_plugin.core.ledger import Ledger
from slurm_plugin.core.ledger_store import LedgerStore, boot_id
from slurm_plugin.core.program_end import plain_end
from slurm_plugin.monitor.attribution import JobFinder, Traced
from slurm_plugin.monitor.source import lasting_telemetry
from slurm_plugin.monitor.sweeper import Sweeper
from slurm_plugin.monitor.telemetry import Telemetry
from slurm_plugin.monitor.usage import add_readings
from slurm_plugin.monitor.window import (
    JobUsage,
    job_path,
    read_job,
    recorded_jobs,
    write_job,
    write_window,
)
from slurm_plugin.node.node import Node

INTERVAL_S = 1.0
"""Thesis, section 6.2.2: one sample a second."""

KEPT_S = 24 * 3600.0
"""A record whose job was not seen for a day has lost its epilog."""


class Exporter(Protocol):
    """Something that shows what was seen (metrics.py)."""

    def show(
        self,
        readings: Sequence[GpuReading],
        usages: Mapping[int, JobUsage],
        owners: Mapping[int, int],
        ledger: Ledger,
    ) -> None:
        """Take over the state after one sample."""
        ...


class Watcher(Protocol):
    """Something that judges what was seen (guard/watch.py)."""

    def look(self, readings: Sequence[GpuReading], ledger: Ledger, traced: Mapping[int, Traced]) -> None:
        """Judge one sample; raises OSError where something cannot be written down."""
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
        guard: Watcher | None = None,
    ) -> None:
        """Take up the records that an earlier monitor left.

        Args:
            telemetry: Reads the GPUs.
            run: paths.run.
            clock: Time.
            window_s: Length of the window.
            finder: Finds the jobs of processes.
            store: The node's ledger, which knows the owners of jobs; None believes every process.
            exporter: Shows metrics, if anybody wants them.
            guard: Judges who takes what he did not book; it needs the ledger.
        """
        self._telemetry = telemetry
        self._run = run
        self._clock = clock
        self._window_s = window_s
        self._finder = finder or JobFinder()
        self._store = store
        self._exporter = exporter
        self._guard = guard
        self._ring: dict[str, deque[tuple[float, float]]] = {}
        self._energy_j: dict[str, float] = {}
        found = (read_job(run, job_id) for job_id in recorded_jobs(run))
        self._usages = {usage.job_id: usage for usage in found if usage is not None}
        self._written = set(self._usages)

    def sample(self) -> tuple[GpuReading, ...]:
        """Read once, and bring window and records up to date.

        Returns:
            What the window says now.

        Raises:
            DeviceError: The GPUs cannot be read, or what was read cannot be written down.
        """
        readings = self._telemetry.read()
        now_s = self._clock.now_s()
        averaged = tuple(self._averaged(reading, now_s) for reading in readings)
        found = self._store.read() if self._store is not None else None
        ledger = None if found is None else found.ledger
        users = None if ledger is None else {held.job_id: held.user_id for held in ledger.reservations}
        traced = self._finder.trace(readings, users=users)
        owners = {pid: one.job_id for pid, one in traced.items() if one.job_id is not None}
        if self._guard is not None and found is not None and not found.lost:
            self._judge(self._guard, readings, found.ledger, traced)
        self._forget(now_s)
        seen = add_readings(
            self._usages, readings, owners, energy_j=self._energy_since(readings), now_s=now_s
        )
        self._usages |= seen
        if self._exporter is not None:
            self._exporter.show(averaged, self._usages, owners, ledger or Ledger())
        write_window(self._run, averaged, now_s=now_s)
        for usage in seen.values():
            write_job(self._run, usage)
            self._written.add(usage.job_id)
        return averaged

    def _judge(
        self,
        guard: Watcher,
        readings: Sequence[GpuReading],
        ledger: Ledger,
        traced: Mapping[int, Traced],
    ) -> None:
        """Have a sample judged before the window tells that it was taken: an Epilog may wait for that."""
        try:
            guard.look(readings, ledger, traced)
        except OSError as exc:
            print(f"rad-monitor: what the guard saw is not written down: {exc}", file=sys.stderr, flush=True)

    def _averaged(self, reading: GpuReading, now_s: float) -> GpuReading:
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
        """Drop the records that an epilog took away, and those that no epilog ever will."""
        left = recorded_jobs(self._run)
        for job_id, usage in list(self._usages.items()):
            taken = job_id in self._written and job_id not in left
            if not taken and now_s - usage.last_s <= KEPT_S:
                continue
            del self._usages[job_id]
            self._written.discard(job_id)
            job_path(self._run, job_id).unlink(missing_ok=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(prog="rad-monitor", description="Watch the GPUs of this node.")
    parser.add_argument("--config", type=Path, default=DEFAULT_PATH, help="rad.toml")
    parser.add_argument("--once", action="store_true", help="take one sample, print it and end")
    parser.add_argument("--metrics", metavar="[ADDRESS:]PORT", help="serve Prometheus metrics there")
    options = parser.parse_args(argv)
    with plain_end("rad-monitor"):
        _run(options)
    return Exit.OK


def _run(options: argparse.Namespace) -> None:
    found = config_in_force(options.config)
    config = found.config
    if found.trouble:
        print(f"rad-monitor: {found.trouble}", file=sys.stderr, flush=True)
    clock = SystemClock()
    run = Path(config.paths.run)
    monitor = Monitor(
        lasting_telemetry(config.telemetry, clock),
        run,
        clock=clock,
        window_s=config.telemetry.window_s,
        store=LedgerStore(run, clock=clock, boot_id=boot_id()),
        exporter=_exporter(options.metrics, Path(config.paths.log)),
        guard=None if options.once else _guard(config, clock),
    )
    if options.once:
        for reading in monitor.sample():
            print(reading)
        return
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    sweeper = Sweeper(Node.here(config, os.environ), say=_say)
    if config.mode == "enforce" and config.features.placement:
        sweeper.start()
    while True:
        watch(monitor, clock, stopped=stopped, look=sweeper.look)
        if signal.SIGTERM in stopped or signal.SIGINT in stopped:
            return
        stopped.clear()
        _begin_anew(options.config)


def _begin_anew(path: Path) -> None:
    """Start this program again with the settings of now, which costs nothing: all its memory lies in files.

    It returns if the settings are wrong: then those of before stay in force.
    """
    try:
        found = config_in_force(path)
        trouble = found.trouble
    except ConfigError as exc:
        trouble = str(exc)
    if trouble:
        _say(f"not taken over: {trouble}")
        return
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def watch(
    monitor: Monitor,
    clock: Clock,
    *,
    stopped: Sequence[int],
    look: Callable[[Sequence[GpuReading]], None] | None = None,
) -> None:
    """Sample once a second, on the second, until `stopped` holds something; say each new trouble once.

    Args:
        monitor: What samples.
        clock: Time.
        stopped: Holds something once it is time to end.
        look: Takes each sample's readings.
    """
    trouble = ""
    next_s = clock.monotonic_s()
    while not stopped:
        try:
            readings = monitor.sample()
            if look is not None:
                look(readings)
            said = ""
        except (DeviceError, LedgerError) as exc:
            said = str(exc)
        if said != trouble:
            _say(said or "all is well again")
            trouble = said
        next_s = max(next_s + INTERVAL_S, clock.monotonic_s())
        clock.sleep(max(0.0, next_s - clock.monotonic_s()))


def _guard(config: Config, clock: Clock) -> Watcher | None:
    if config.mode == "off":
        return None
    from slurm_plugin.guard.stop import Stopper
    from slurm_plugin.guard.tell import Teller
    from slurm_plugin.guard.watch import Guard

    return Guard(config, clock=clock, stopper=Stopper(clock), teller=Teller(config))


def _say(line: str) -> None:
    print(f"rad-monitor: {line}", file=sys.stderr, flush=True)


def _exporter(address: str | None, log: Path) -> Exporter | None:
    if address is None:
        return None
    from slurm_plugin.monitor.metrics import serve

    return serve(address, log)


if __name__ == "__main__":
    sys.exit(main())
