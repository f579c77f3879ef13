"""Running jobs with their latest ends: all that Slurm knows of when GPUs become free."""

from __future__ import annotations

from bisect import insort

from slurm_plugin.simulate.progress import Run


class Running:
    """The runs, by the GPUs that Slurm assigned.

    Attributes:
        by_gpu: For each GPU (end in seconds since the trace began, number of the job, shards), earliest end first.
    """

    def __init__(self, gpus: int) -> None:
        """Start empty."""
        self.by_gpu: list[list[tuple[float, int, int]]] = [[] for _ in range(gpus)]

    def add(self, run: Run) -> None:
        """Add a run that starts."""
        job = run.job
        for gpu in run.gpu_indices:
            insort(self.by_gpu[gpu], (run.start_s + job.limit_s, job.number, job.shards))

    def remove(self, run: Run) -> None:
        """Remove a run that is over."""
        for gpu in run.gpu_indices:
            self.by_gpu[gpu] = [row for row in self.by_gpu[gpu] if row[1] != run.job.number]

    def until_s(self, gpu: int, now_s: float) -> float:
        """Return the latest end of the runs on a GPU.

        Args:
            gpu: Its number in the cluster.
            now_s: Seconds since the trace began; the result for an idle GPU.
        """
        return max((end_s for end_s, _, _ in self.by_gpu[gpu]), default=now_s)
