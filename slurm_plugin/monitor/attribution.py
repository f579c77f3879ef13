"""Determine the Slurm job of each GPU process.

The kernel shows it by the process's parents, session or cgroup; otherwise its environment does (node/processes.py has
the details). Where the users of jobs are known, a process of another user belongs to no job, whatever shows it, and an
entry in its environment counts only for a known job. Such an entry is never certain: it counts towards a job's usage,
but the job is not judged by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.process.identity import PROC, Process, owner_of
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.slurm.node.daemons import Belonging
from slurm_plugin.slurm.node.processes import owners_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One GPU process and its owner.

    Attributes:
        process: The process.
        user_id: The user that it belongs to; None if it has gone.
        job_id: Its job; None if it belongs to none.
        certain: Whether the kernel shows its job.
    """

    process: Process
    user_id: int | None
    job_id: int | None
    certain: bool = False


class JobFinder:
    """Finds the jobs of processes, and caches what is certain: /proc is slow to read, and parents may end.

    What is not certain is read each time: a program that just starts shows nothing for a moment, and a login may be
    moved into a job's cgroup later.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._certain: dict[Process, Belonging] = {}

    def owners(
        self, readings: Iterable[GpuReading], *, users: Mapping[int, int] | None = None
    ) -> dict[int, int]:
        """Return the job id of every GPU process that belongs to a job.

        Args:
            readings: Readings of the GPUs, with their processes.
            users: User id of each job, as the ledger knows it; None where there is no ledger, and each process is
                believed.
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
        known = {one: self._certain[one] for one in born if one in self._certain}
        looked = owners_of([one.pid for one in born if one not in known], proc=self._proc)
        found = {one: known.get(one) or looked.get(one.pid) for one in born}
        self._certain = {one: job for one, job in found.items() if job is not None and job.certain}
        return {one.pid: self._traced(one, belonging, users) for one, belonging in found.items()}

    def _traced(
        self, process: Process, belonging: Belonging | None, users: Mapping[int, int] | None
    ) -> Traced:
        user_id = owner_of(process.pid, self._proc)
        if belonging is None or (users is not None and not _may_be(belonging, user_id, users)):
            return Traced(process=process, user_id=user_id, job_id=None)
        return Traced(process=process, user_id=user_id, job_id=belonging.job_id, certain=belonging.certain)


def _may_be(belonging: Belonging, user_id: int | None, users: Mapping[int, int]) -> bool:
    """Return whether a user's process may be a job's: it has the same user, or is certain and the user is unknown."""
    owner = users.get(belonging.job_id)  # 0 also where a ledger was rebuilt without Slurm
    return owner == user_id if owner else belonging.certain
