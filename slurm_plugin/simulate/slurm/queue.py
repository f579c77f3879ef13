"""The waiting jobs in Slurm's order: priority, then age.

Waiting jobs of one size are interchangeable except for their limits, so there is one list for each size; a pass
examines the sizes, not every job.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import NamedTuple

from slurm_plugin.simulate.progress import SimulatedJob

Size = tuple[int, int]
"""GPUs of a job, and shards of each."""
Key = tuple[int, float, int]


class QueueRank(NamedTuple):
    """A position in the queue; the smallest is examined first.

    Attributes:
        key: Sort key of the job at this position.
        size: Size of the jobs in the list.
        behind: Number of jobs of that size ahead of it.
    """

    key: Key
    size: Size
    behind: int


class Queue:
    """The waiting jobs, including those that are not eligible yet."""

    def __init__(self) -> None:
        """Start empty."""
        self._by_size: dict[Size, list[tuple[Key, SimulatedJob]]] = {}
        self._later: list[tuple[float, int, SimulatedJob]] = []
        self._waits: set[int] = set()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        return self._count

    def add(self, job: SimulatedJob, now_s: float) -> None:
        """Queue a job; it is considered once it is eligible.

        Args:
            job: The job.
            now_s: Seconds since the trace began.
        """
        self._count += 1
        if job.eligible_s > now_s:
            heapq.heappush(self._later, (job.eligible_s, job.number, job))
            self._waits.add(job.number)
        else:
            self._enter(job)

    def _enter(self, job: SimulatedJob) -> None:
        insort(self._by_size.setdefault((job.gpus, job.shards), []), (job.key, job))

    def next_wake_s(self) -> float | None:
        """Return when the next job becomes eligible; None if there is none."""
        return self._later[0][0] if self._later else None

    def wake(self, now_s: float) -> bool:
        """Add the jobs that have become eligible; return whether there are any."""
        woken = False
        while self._later and self._later[0][0] <= now_s:
            at_s, _, job = heapq.heappop(self._later)
            if job.number not in self._waits or at_s != job.eligible_s:
                continue  # it was moved to an earlier start
            self._waits.remove(job.number)
            self._enter(job)
            woken = True
        return woken

    def sooner(self, job: SimulatedJob, at_s: float) -> None:
        """Make a job eligible earlier than planned; no effect if it already is.

        Args:
            job: The job.
            at_s: Seconds since the trace began.
        """
        if job.number in self._waits and at_s < job.eligible_s:
            job.eligible_s = at_s
            heapq.heappush(self._later, (at_s, job.number, job))

    def remove(self, job: SimulatedJob) -> None:
        """Remove a job that starts."""
        rows = self._by_size[job.gpus, job.shards]
        rows.pop(bisect_left(rows, job.key, key=lambda row: row[0]))
        self._count -= 1

    def heads(self) -> list[QueueRank]:
        """Return the first position of each size, as a heap."""
        found = [QueueRank(rows[0][0], size, 0) for size, rows in self._by_size.items() if rows]
        heapq.heapify(found)
        return found

    def at(self, place: QueueRank) -> SimulatedJob:
        """Return the job at a position."""
        return self._by_size[place.size][place.behind][1]

    def place(self, size: Size, behind: int) -> QueueRank | None:
        """Return a position in the queue; None if it is empty.

        Args:
            size: Size of the jobs in the list.
            behind: Number of jobs of that size ahead of it.
        """
        rows = self._by_size[size]
        return QueueRank(rows[behind][0], size, behind) if len(rows) > behind else None
