"""Which Slurm job each GPU process belongs to.

By its cgroup, which only root sets; else by its environment (slurm/processes.py tells how). A user could put another's
job id into the environment, so a process counts only if it runs as the owner of that job, where owners are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from slurm_plugin.core.gpu import GpuReading
from slurm_plugin.core.process import PROC, owner_of, started_ticks
from slurm_plugin.slurm.processes import owners_of


class JobFinder:
    """Finds the jobs of processes, and remembers: a process never changes its job, and /proc is slow to read."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._known: dict[tuple[int, int], int | None] = {}

    def owners(
        self, readings: Iterable[GpuReading], *, users: Mapping[int, int] | None = None
    ) -> dict[int, int]:
        """Return the job id of every GPU process that belongs to a job.

        Args:
            readings: Readings of the GPUs, with their processes.
            users: User id of each job's owner, as the ledger knows it; for other jobs the process is believed.
        """
        pids = {process.pid for reading in readings for process in reading.processes}
        births = {pid: started_ticks(pid, self._proc) for pid in pids}
        born = {(pid, ticks) for pid, ticks in births.items() if ticks is not None}
        fresh = [pid for pid, ticks in born if (pid, ticks) not in self._known]
        found = owners_of(fresh, proc=self._proc)
        known = {key: self._known[key] for key in born if key in self._known}
        self._known = known | {key: found.get(key[0]) for key in born if key not in known}
        return {
            pid: job_id
            for (pid, _), job_id in self._known.items()
            if job_id is not None and self._plausible(pid, (users or {}).get(job_id))
        }

    def _plausible(self, pid: int, user_id: int | None) -> bool:
        return user_id is None or owner_of(pid, self._proc) == user_id
