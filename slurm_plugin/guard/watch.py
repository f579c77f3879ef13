"""The guard, run at each sample of rad-monitor: find, confirm and record violations, and stop jobs where required."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.requeued_jobs import lacking_bytes, waiting_jobs
from slurm_plugin.core.logs.daemon_log import about
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.core.placement.server_keys import is_shared, user_of
from slurm_plugin.core.process.identity import PROC, Process
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.guard.ended_servers import ended_servers
from slurm_plugin.guard.incident_file import read_incidents, write_incidents
from slurm_plugin.guard.incidents import Incident, incident_of, with_incidents
from slurm_plugin.guard.leaving import Leaving
from slurm_plugin.guard.mps_faults import SampledProcess, fault_incident
from slurm_plugin.guard.sample import Mine, Sample
from slurm_plugin.guard.strikes import Key, Strike, confirmed
from slurm_plugin.guard.violation import Violation
from slurm_plugin.guard.violations import violations
from slurm_plugin.monitor.attribution import Traced
from slurm_plugin.monitor.idle import idle_jobs
from slurm_plugin.monitor.window import JobUsage
from slurm_plugin.mps import Mps
from slurm_plugin.mps.log import LogWatch
from slurm_plugin.mps.quarantine import Caused, Faults
from slurm_plugin.mps.simulated import SimulatedMps

log = logging.getLogger("rad-monitor")

PIDS_KEPT_S = 120.0
"""How long a pid's job is remembered: a process that an MPS server ended is gone when the server's log is read."""

ORPHANED_S = 120.0
"""A job that an MPS daemon counts and the ledger has not known for this long had no Epilog."""


_EVENTS = {"unmanaged": EventKind.UNMANAGED, "idle": EventKind.IDLE}


class Guard:
    """The guard that rad-monitor runs at every sample."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock,
        stop: Callable[[Violation], None],
        notify: Callable[[Violation], None],
    ) -> None:
        """Continue from the records of an earlier monitor.

        Args:
            config: rad.toml.
            clock: Time.
            stop: Ends the job of a violation, and returns at once.
            notify: Writes a warning into its AdminComment, and returns at once.
        """
        self._config, self._clock = config, clock
        self._end_job, self._notify = stop, notify
        self._run = Path(config.paths.run)
        simulated = config.telemetry.source == "simulated"
        self._mps: Mps = (SimulatedMps if simulated else Mps)(self._run, clock=clock)
        self._log = LogWatch(self._mps.folder)
        self._strikes: dict[Key, Strike] = {}
        self._incidents = self._written = read_incidents(self._run)
        self._lost: dict[int, float] = {}
        self._leaving = Leaving(self._incidents)
        self._seen: dict[int, SampledProcess] = {}
        self._served: dict[tuple[str, str], dict[int, int]] | None = None
        self._runs: dict[int, Allocation] = {}
        self._faults = Faults(self._run, clock, log.warning)

    def look(
        self,
        readings: Sequence[GpuReading],
        ledger: Ledger,
        traced: Mapping[int, Traced],
        usages: Mapping[int, JobUsage] = MappingProxyType({}),
    ) -> None:
        """Judge one sample.

        Args:
            readings: All GPUs, with their processes.
            ledger: The allocations, read after the GPUs were, and not rebuilt from guesses.
            traced: Owner of each GPU process, by pid.
            usages: Usage of each job until the sample before.

        Raises:
            OSError: The incidents cannot be written; the jobs that must be stopped were stopped.
        """
        now_s, monotonic_s = self._clock.now_s(), self._clock.monotonic_s()
        self._remember(traced, monotonic_s)
        self._release_orphans(ledger, monotonic_s)
        acts = self._config.guards
        for one in self._leaving.unfinished(ledger) if acts else ():
            self._stop(one)
        sample = Sample(
            readings=readings,
            ledger=ledger,
            traced=traced,
            mine=self._mine(ledger),
            ages_s=self._ages_s([one.process for one in traced.values()]),
            now_s=monotonic_s,
            leaving=self._leaving.runs(monotonic_s),
            idle=idle_jobs(ledger, usages, self._config),
            lacking_bytes=lacking_bytes(waiting_jobs(self._run), now_s=now_s),
        )
        found = violations(sample, self._config)
        if not acts:
            found = tuple(dataclasses.replace(one, response="warn") for one in found)
        self._strikes, sure = confirmed(found, self._strikes, now_s=monotonic_s)
        new = [incident_of(one, now_s=now_s) for one in found]
        new += [incident_of(one, now_s=now_s, stopped=one.response != "warn") for one in sure]
        new += self._mps_incidents(ledger, now_s)
        self._incidents = with_incidents(self._incidents, new, now_s=now_s)
        try:
            if self._incidents != self._written:
                write_incidents(self._run, self._incidents)  # before the job ends: its Epilog reads it
                self._written = self._incidents
        except OSError:
            # Without a record the Epilog takes a stopped job for a cancelled one, which would end a well-behaved job.
            sure = tuple(one for one in sure if one.kind != "overrun")
            raise
        finally:
            for one in sure:
                self._act(one)

    def _stop(self, violation: Violation) -> None:
        self._leaving.notified(violation, self._clock.monotonic_s())
        self._end_job(violation)

    def _act(self, violation: Violation) -> None:
        stops = violation.response != "warn"
        kind = _EVENTS.get(violation.kind, EventKind.OVERRUN)
        events = HookLog(
            self._config.paths.log,
            "monitor",
            job_id=violation.job_id or 0,
            restart=violation.restart,
            clock=self._clock,
        )
        events.write(
            kind,
            violation.sentence() + (", stopped" if stops else ""),
            what=violation.kind,
            gpu=violation.gpu,
            user_id=violation.user_id,
            used_bytes=violation.used_bytes,
            limit_bytes=violation.limit_bytes,
            response=violation.response,
        )
        if stops:
            self._stop(violation)
        elif self._config.mode == "enforce" and violation.kind != "unmanaged":
            self._notify(violation)

    def _mine(self, ledger: Ledger) -> Mine:
        if self._config.telemetry.source == "simulated":
            return self._simulated(ledger)
        lost = self._mps.uncapped()  # without server and limit, a job bypasses nothing
        caps = {key: cap for key, cap in self._mps.caps().items() if key[1] not in lost}
        return Mine(
            servers=self._mps.processes(),
            clients=frozenset(caps),
            capped=frozenset(key for key, cap in caps.items() if cap is not None),
        )

    def _simulated(self, ledger: Ledger) -> Mine:
        """Return the simulated MPS state: simulated GPUs have limits and no servers."""
        keys = frozenset(
            (gpu, allocation.job_id)
            for allocation in ledger.allocations
            for gpu in allocation.gpus
            if allocation.part_of_one_gpu
            and not allocation.uncapped
            and self._config.caps(allocation.partition)
        )
        return Mine(clients=keys, capped=keys)

    def _remember(self, traced: Mapping[int, Traced], monotonic_s: float) -> None:
        self._seen = {
            pid: one for pid, one in self._seen.items() if monotonic_s - one.last_s <= PIDS_KEPT_S
        } | {
            pid: SampledProcess(monotonic_s, one.job_id, one.user_id)
            for pid, one in traced.items()
            if one.job_id is not None and one.certain
        }

    def _mps_incidents(self, ledger: Ledger, now_s: float) -> list[Incident]:
        """Return the faults that MPS servers reported, and the servers that ended while jobs used them."""
        before, self._served = self._served, self._mps.users()
        served = {at: (before or {}).get(at, {}) | jobs for at, jobs in self._served.items()}
        served = (before or {}) | served  # its Epilog may have released a job before the log is read
        jobs_there = {job for jobs in served.values() for job in jobs}
        current = {allocation.job_id: allocation for allocation in ledger.allocations}
        self._runs = {job: run for job, run in (self._runs | current).items() if job in jobs_there}
        found: list[Incident] = []
        for (gpu, key), faults in self._log.faults().items():
            jobs = served.get((gpu, key), {})
            for fault in faults:
                incident = fault_incident(
                    fault,
                    gpu=gpu,
                    user_id=user_of(key),
                    jobs=jobs,
                    seen=self._seen,
                    fresh=before is not None,  # otherwise it may have been there before this monitor
                    now_s=now_s,
                )
                if incident is None:
                    continue
                found.append(incident)
                if before is not None and self._config.mode == "enforce":
                    self._keep_apart(incident, key, jobs)
        self._faults.record()
        found += ended_servers(self._mps, now_s=now_s)
        return found

    def _keep_apart(self, incident: Incident, key: str, users: Mapping[int, int]) -> None:
        """Keep a fault of the jobs that may have caused it, to be recorded while they may still run on."""
        for job in incident.victims if incident.culprit is None else (incident.culprit,):
            run = self._runs.get(job)
            settings = None if run is None else self._config.partition(run.partition)
            user_id = users.get(job, user_of(key))
            if user_id is None or not (is_shared(key) or (settings and settings.mps_server != "user")):
                continue  # its user shares no server with others
            caused = Caused(
                job_id=job,
                restart=0 if run is None else run.restart,
                profile_key=None if run is None else run.profile_key,
                time_s=incident.last_s,
                certain=incident.culprit is not None,
            )
            self._faults.found(user_id, caused)

    def _release_orphans(self, ledger: Ledger, monotonic_s: float) -> None:
        """Release jobs from MPS whose Epilog did not: otherwise their daemons would run forever."""
        counted = {job for _, job in self._mps.caps()}
        lost = counted - {allocation.job_id for allocation in ledger.allocations}
        self._lost = {job: self._lost.get(job, monotonic_s) for job in lost}
        for job, since_s in self._lost.items():
            if monotonic_s - since_s > ORPHANED_S:
                try:
                    self._mps.release(job)
                except MpsError as exc:
                    what = about(EventKind.NOT_RELEASED, job_id=job)
                    log.warning("job %d not released from MPS: %s", job, exc, extra=what)

    def _ages_s(self, processes: Sequence[Process]) -> dict[Process, float]:
        """Return the age of each process (proc(5): /proc/uptime, and field 22 of /proc/PID/stat)."""
        try:
            uptime_s = float((PROC / "uptime").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return {}
        ticks_per_s = os.sysconf("SC_CLK_TCK")
        return {one: uptime_s - one.started_ticks / ticks_per_s for one in processes}
