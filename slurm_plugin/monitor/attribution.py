"""Which Slurm job each GPU process belongs to.

By its cgroup or its parents, which only root decides; else by its environment (slurm/processes.py tells how). A user
could put another's job id into the environment, so such a process counts only if it runs as the owner of that job,
where owners are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.gpu import GpuReading
from slurm_plugin.core.process import PROC, Process, owner_of
from slurm_plugin.slurm.processes import Belonging, owners_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One GPU process and whose it is.

    Attributes:
        process: The process.
        user_id: Who runs it; None if it has gone.
        job_id: Its job; None if it belongs to none.
    """

    process: Process
    user_id: int | None
    job_id: int | None


class JobFinder:
    """Finds the jobs of processes, and remembers: a process never changes its job, and /proc is slow to read."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._known: dict[Process, Belonging | None] = {}

    def owners(
        self, readings: Iterable[GpuReading], *, users: Mapping[int, int] | None = None
    ) -> dict[int, int]:
        """Return the job id of every GPU process that belongs to a job.

        Args:
            readings: Readings of the GPUs, with their processes.
            users: User id of each job's owner, as the ledger knows it; for other jobs the process is believed.
        """
        return {
            pid: traced.job_id
            for pid, traced in self.trace(readings, users=users).items()
            if traced.job_id is not None
        }

    def trace(
        self, readings: Iterable[GpuReading], *, users: Mapping[int, int] | None = None
    ) -> dict[int, Traced]:
        """Return every GPU process that still runs, by its pid; arguments as for `owners`."""
        pids = {process.pid for reading in readings for process in reading.processes}
        born = {one for one in (Process.running(pid, self._proc) for pid in pids) if one is not None}
        fresh = [one for one in born if one not in self._known]
        found = owners_of([one.pid for one in fresh], proc=self._proc)
        known = {one: self._known[one] for one in born if one in self._known}
        self._known = known | {one: found.get(one.pid) for one in fresh}
        return {one.pid: self._traced(one, belonging, users or {}) for one, belonging in self._known.items()}

    def _traced(self, process: Process, belonging: Belonging | None, users: Mapping[int, int]) -> Traced:
        user_id = owner_of(process.pid, self._proc)
        job_id = None if belonging is None else belonging.job_id
        if (
            belonging is not None
            and not belonging.certain
            and users.get(belonging.job_id, user_id) != user_id
        ):
            job_id = None
        return Traced(process=process, user_id=user_id, job_id=job_id)
