"""Who holds seats until when at the latest: all that Slurm knows of when GPUs become free."""

from __future__ import annotations

from bisect import insort

from slurm_plugin.simulate.progress import Run


class Running:
    """The runs that hold seats, by GPU.

    Attributes:
        by_gpu: For each GPU (end in seconds since the trace began, number of the job, shards), the first end first.
    """

    def __init__(self, gpus: int) -> None:
        """Start with nobody."""
        self.by_gpu: list[list[tuple[float, int, int]]] = [[] for _ in range(gpus)]

    def add(self, run: Run) -> None:
        """Note a run that starts."""
        job = run.job
        for gpu in run.seats:
            insort(self.by_gpu[gpu], (run.start_s + job.limit_s, job.number, job.shards))

    def remove(self, run: Run) -> None:
        """Note that it is over."""
        for gpu in run.seats:
            self.by_gpu[gpu] = [row for row in self.by_gpu[gpu] if row[1] != run.job.number]

    def until_s(self, gpu: int, now_s: float) -> float:
        """Return until when a GPU is held at the latest.

        Args:
            gpu: Its number in the cluster.
            now_s: Seconds since the trace began; the answer for a GPU that nobody holds.
        """
        return max((end_s for end_s, _, _ in self.by_gpu[gpu]), default=now_s)
