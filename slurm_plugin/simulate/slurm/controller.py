"""slurmctld: waiting jobs, free GPUs and shards, and the next jobs to start."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from slurm_plugin.simulate.cluster import SimulatedCluster
from slurm_plugin.simulate.progress import SimulatedJob, SimulatedRun
from slurm_plugin.simulate.slurm.backfill import Promise, find, promise
from slurm_plugin.simulate.slurm.queue import Queue
from slurm_plugin.simulate.slurm.running import Running
from slurm_plugin.simulate.slurm.shard_table import ShardTable
from slurm_plugin.slurm.versions import traits

PROMISES = 5
"""Number of blocked jobs that get a planned start."""
BEHIND_PROMISE = 30
"""Number of jobs of one size that are tested for a limit that ends before a planned start."""


class Controller:
    """Slurm's view of the cluster.

    Attributes:
        queue: The waiting jobs.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        """Start with an empty cluster."""
        slurm = traits(cluster.slurm)
        self.queue = Queue()
        self._table = ShardTable(
            cluster.nodes,
            cluster.per_node,
            cluster.settings.shards,
            apart=slurm.keeps_gpu_and_shard_apart,
            by_kind=slurm.plans_by_kind,
            managed=cluster.managed,
        )
        self._running = Running(cluster.nodes * cluster.per_node)
        self._began_s = cluster.began_s
        self._young_s = cluster.min_age_reserve_s

    def started(self, run: SimulatedRun) -> None:
        """Count the GPUs and shards of a run as used."""
        self._table.take(run.gpu_indices, run.job.shards)
        self._running.add(run)

    def ended(self, run: SimulatedRun) -> None:
        """Count the GPUs and shards of a run as free; its job must still have the same booking."""
        self._table.give_back(run.gpu_indices, run.job.shards)
        self._running.remove(run)

    def passes(self, now_s: float, *, backfill: bool) -> Iterator[tuple[SimulatedJob, tuple[int, ...]]]:
        """Yield jobs to start with their GPUs; each has left the queue, and the caller starts or requeues it.

        Args:
            now_s: Seconds since the trace began.
            backfill: False: stop at the first job that does not fit, as Slurm's main scheduler does.
        """
        heads = self.queue.heads()
        promises: list[Promise] = []
        while heads:
            place = heapq.heappop(heads)
            job = self.queue.at(place)
            gpu_indices = find(job, self._table, promises, now_s)
            if gpu_indices is not None:
                self.queue.remove(job)
                yield job, gpu_indices
                following = self.queue.place(place.size, place.behind)
            elif not backfill and self._reserves(job, now_s):
                return
            else:
                blocked = not self._table.may_fit(*place.size)
                if len(promises) < PROMISES and self._reserves(job, now_s):
                    planned = promise(job, self._table, self._running, now_s, self._began_s, promises)
                    promises += [] if planned is None else [planned]
                if blocked or place.behind >= BEHIND_PROMISE:
                    continue
                following = self.queue.place(place.size, place.behind + 1)
            if following is not None:
                heapq.heappush(heads, following)

    def _reserves(self, job: SimulatedJob, now_s: float) -> bool:
        """Return whether a job has waited long enough that others must not delay it."""
        return now_s - max(job.queued_s, job.eligible_s) >= self._young_s
