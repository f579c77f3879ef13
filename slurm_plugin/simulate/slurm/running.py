"""Running jobs with their latest ends: all that Slurm knows of when GPUs become free."""

from __future__ import annotations

from bisect import insort

from slurm_plugin.simulate.progress import SimulatedRun


class Running:
    """The runs, by the GPUs that Slurm assigned.

    Attributes:
        by_gpu: For each GPU (end in seconds since the trace began, number of the job, shards), earliest end first.
    """

    def __init__(self, gpus: int) -> None:
        """Start empty."""
        self.by_gpu: list[list[tuple[float, int, int]]] = [[] for _ in range(gpus)]

    def add(self, run: SimulatedRun) -> None:
        """Add a run that starts."""
        job = run.job
        for gpu in run.gpu_indices:
            insort(self.by_gpu[gpu], (run.start_s + job.limit_s, job.number, job.shards))

    def remove(self, run: SimulatedRun) -> None:
        """Remove a run that is over."""
        for gpu in run.gpu_indices:
            self.by_gpu[gpu] = [row for row in self.by_gpu[gpu] if row[1] != run.job.number]
