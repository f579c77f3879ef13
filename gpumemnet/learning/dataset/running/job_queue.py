"""Queue of jobs by index, such that a process can continue with jobs that load the same libraries."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from gpumemnet.learning.dataset.running.child import MeasurementJob

LONG = 40
"""Number of waiting jobs of another kind at which a process should be replaced by one for that kind."""


class JobQueue:
    """Returns jobs of any or one kind, and keeps the kinds at about the same progress."""

    def __init__(self, jobs: Iterable[MeasurementJob]) -> None:
        self._jobs = iter(jobs)
        self._waiting: defaultdict[str, deque[MeasurementJob]] = defaultdict(deque)

    def return_job(self, job: MeasurementJob) -> None:
        """Queue a job for another run, in a process of its kind."""
        self._waiting[job.libraries()].appendleft(job)

    def take(self, libraries: str | None = None) -> MeasurementJob | None:
        """Return the next job of this kind, or of the kind with most waiting; None if there is none.

        Args:
            libraries: The kind, see MeasurementJob.libraries; None for any.
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
