"""Slurm's queue: priority, then age; backfill that never delays what it has promised a start.

Waiting jobs of one size are interchangeable but for their limits, so they are kept in one list for each size; a pass
looks at the sizes, not at every job. Slurm plans a start for every waiting job it tests; here the first few that do
not fit get one.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

from slurm_plugin.admin.simulate.jobs import Job
from slurm_plugin.admin.simulate.seats import Seats

PROMISES = 5
"""Blocked jobs that get a planned start."""
SEARCHED_NODES = 24
"""Nodes looked at for a planned start; on larger clusters the plan is only nearly the earliest."""
BEHIND_PROMISE = 30
"""Jobs of one size whose limits are looked at for whether they fit before a promised start."""

Size = tuple[int, int]


@dataclass(slots=True)
class Promise:
    """A start that backfill must not delay.

    Attributes:
        gpus: Where.
        start_s: When, by the limits of those who run there.
        spare: Shards on that GPU that nobody will need then.
    """

    gpus: frozenset[int]
    start_s: float
    spare: int


class Queue:
    """The waiting jobs."""

    def __init__(self, *, drain: bool = False) -> None:
        """Start empty; with `drain` shared jobs go where they keep the GPU busy for the shortest time longer."""
        self._drain = drain
        self._by_size: dict[Size, list[tuple[tuple[int, float, int], Job]]] = {}
        self._later: list[tuple[float, int, Job]] = []
        self.waiting = 0

    def add(self, job: Job, now_s: float) -> None:
        """Queue a job; it is looked at once it is eligible.

        Args:
            job: The job.
            now_s: Seconds since the trace began.
        """
        self.waiting += 1
        if job.eligible_s > now_s:
            heapq.heappush(self._later, (job.eligible_s, job.number, job))
        else:
            self._enter(job)

    def _enter(self, job: Job) -> None:
        insort(self._by_size.setdefault((job.gpus, job.shards), []), (job.key, job))

    def next_wake_s(self) -> float | None:
        """Return when the next job becomes eligible; None if none waits for that."""
        return self._later[0][0] if self._later else None

    def wake(self, now_s: float) -> bool:
        """Take up the jobs that have become eligible; return whether there are any."""
        woken = False
        while self._later and self._later[0][0] <= now_s:
            self._enter(heapq.heappop(self._later)[2])
            woken = True
        return woken

    def remove(self, job: Job) -> None:
        """Take a job out, as it starts."""
        rows = self._by_size[job.gpus, job.shards]
        rows.pop(bisect_left(rows, job.key, key=lambda row: row[0]))
        self.waiting -= 1

    def passes(self, seats: Seats, running: Running, now_s: float, *, backfill: bool) -> Iterator[Job]:
        """Yield jobs to start, each with `seats` filled in; the caller takes them out before it asks on.

        Args:
            seats: What is free; changes while this goes on.
            running: Who holds what until when.
            now_s: The time.
            backfill: False: stop at the first job that does not fit, as Slurm's main scheduler does.
        """
        heads = [(rows[0][0], size, 0) for size, rows in self._by_size.items() if rows]
        heapq.heapify(heads)
        promises: list[Promise] = []
        while heads:
            _, size, place = heapq.heappop(heads)
            rows = self._by_size[size]
            job = rows[place][1]
            found = find(job, seats, promises, now_s, running if self._drain else None)
            if found is not None:
                job.seats = found
                yield job
                if len(rows) > place:
                    heapq.heappush(heads, (rows[place][0], size, place))
                continue
            if not backfill:
                return
            blocked = not seats.may_fit(*size)
            if len(promises) < PROMISES:
                promises.append(promise(job, seats, running, now_s))
            if not blocked and place < BEHIND_PROMISE and len(rows) > place + 1:
                heapq.heappush(heads, (rows[place + 1][0], size, place + 1))


class Running:
    """Who holds seats until when at the latest, by GPU."""

    def __init__(self, gpus: int) -> None:
        """Start empty."""
        self.by_gpu: list[list[tuple[float, int, int]]] = [[] for _ in range(gpus)]

    def add(self, job: Job, now_s: float) -> None:
        """Note a job that starts.

        Args:
            job: The job, with its seats.
            now_s: Seconds since the trace began.
        """
        for gpu in job.seats:
            insort(self.by_gpu[gpu], (now_s + job.limit_s, job.number, job.shards))

    def until_s(self, gpu: int, now_s: float) -> float:
        """Return until when a GPU is held at the latest.

        Args:
            gpu: Its number in the cluster.
            now_s: Seconds since the trace began; the answer for a GPU that nobody holds.
        """
        return max((end_s for end_s, _, _ in self.by_gpu[gpu]), default=now_s)

    def remove(self, job: Job) -> None:
        """Note that it has ended."""
        for gpu in job.seats:
            self.by_gpu[gpu] = [row for row in self.by_gpu[gpu] if row[1] != job.number]


def find(
    job: Job, seats: Seats, promises: list[Promise], now_s: float, drained: Running | None = None
) -> tuple[int, ...] | None:
    """Return the seats that a job can have now without breaking a promise; None if there are none.

    Args:
        job: The job that waits.
        seats: What is free.
        promises: Starts that must not be delayed.
        now_s: Seconds since the trace began.
        drained: Who holds seats until when, where GPUs are to drain early; None takes the least loaded.
    """
    if not seats.may_fit(job.gpus, job.shards):
        return None
    end_s = now_s + job.limit_s
    node = seats.nodes_with_room(job.gpus, job.shards)
    while node is not None:
        fitting = [
            gpu
            for gpu in seats.candidates(node, job.gpus, job.shards)
            if not any(
                gpu in promise.gpus and end_s > promise.start_s and promise.spare < job.shards
                for promise in promises
            )
        ]
        if drained is not None and job.shards < seats.shards:
            # sorted() keeps the order of those that are equal: the least loaded first, as before.
            fitting.sort(key=lambda gpu: max(0.0, end_s - drained.until_s(gpu, now_s)))
        if len(fitting) >= job.gpus:
            return tuple(sorted(fitting[: job.gpus]))
        node = seats.nodes_with_room(job.gpus, job.shards, node + 1)
    return None


def promise(job: Job, seats: Seats, running: Running, now_s: float) -> Promise:
    """Return where and when a job can start at the latest, by the limits of those who run.

    Args:
        job: The job that waits first.
        seats: What is free.
        running: Who holds seats until when at the latest.
        now_s: Seconds since the trace began.
    """
    best: tuple[float, frozenset[int], int] | None = None
    least = job.shards if job.gpus == 1 else seats.shards
    step = max(1, seats.nodes // SEARCHED_NODES)
    for node in range(0, seats.nodes, step):
        ready = []
        for gpu in seats.gpus_for(node, least):
            free, at_s = seats.free[gpu], now_s
            for end_s, _, shards in running.by_gpu[gpu]:
                if free >= least:
                    break
                free, at_s = free + shards, max(now_s, end_s)
            if free >= least:
                ready.append((at_s, gpu, free - least))
        if len(ready) < job.gpus:
            continue
        ready.sort()
        chosen = ready[: job.gpus]
        start_s = chosen[-1][0]
        if best is None or start_s < best[0]:
            spare = chosen[0][2] if job.gpus == 1 else 0
            best = (start_s, frozenset(gpu for _, gpu, _ in chosen), spare)
    if best is None:
        return Promise(gpus=frozenset(), start_s=now_s, spare=0)
    return Promise(gpus=best[1], start_s=best[0], spare=best[2])
