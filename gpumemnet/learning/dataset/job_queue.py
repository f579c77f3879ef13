"""Jobs in the order of their indices, handed out so that a process can go on with jobs that load the same libraries."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from gpumemnet.learning.dataset.child import Job

LONG = 40
"""So many jobs of another kind waiting mean that a process should make room for one of that kind."""


class JobQueue:
    """Hands out jobs, any or of one kind, and keeps the kinds about equally far."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = iter(jobs)
        self._waiting: defaultdict[str, deque[Job]] = defaultdict(deque)

    def put_back(self, job: Job) -> None:
        """Queue a job to be run once more, in a process of its own kind."""
        self._waiting[job.libraries()].appendleft(job)

    def take(self, libraries: str | None = None) -> Job | None:
        """Return the next job of this kind, or the one most waited for; None if there is none.

        Args:
            libraries: The kind, see Job.libraries; None for any.
        """
        if libraries is None:
            longest = max(self._waiting.values(), key=len, default=None)
            return longest.popleft() if longest else next(self._jobs, None)
        if self._waiting[libraries]:
            return self._waiting[libraries].popleft()
        while all(len(waiting) < LONG for waiting in self._waiting.values()):
            job = next(self._jobs, None)
            if job is None or job.libraries() == libraries:
                return job
            self._waiting[job.libraries()].append(job)
        return None
