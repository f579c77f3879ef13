"""Find where a job can start now, and plan the start of one that cannot, so that backfill never delays it.

Slurm plans a start for every waiting job it tests; here only the first few that do not fit get one. It reserves whole
nodes (slurm.schedmd.com/preempt.html, Limitations): a job that would still run at a planned start does not start on
that node, whatever part of it is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_plugin.simulate.progress import SimulatedJob
from slurm_plugin.simulate.slurm.running import Running
from slurm_plugin.simulate.slurm.shard_table import ShardTable

RESOLUTION_S = 60.0
"""SchedulerParameters bf_resolution, Slurm's default: a planned start is rounded down to the minute."""
SEARCHED_NODES = 24
"""Number of nodes searched for a planned start; on larger clusters the plan is only nearly the earliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A planned start that backfill must not delay.

    Attributes:
        node: Number of the node.
        start_s: Time of the start, by the limits of the jobs that run there.
    """

    node: int
    start_s: float

    def allows(self, node: int, end_s: float) -> bool:
        """Return whether a job may start on a node.

        Args:
            node: Number of the node.
            end_s: When the job ends at the latest.
        """
        return node != self.node or end_s <= self.start_s


def find(
    job: SimulatedJob, table: ShardTable, promises: Sequence[Promise], now_s: float
) -> tuple[int, ...] | None:
    """Return the GPUs that a job can have now without delaying a planned start; None if there are none.

    Args:
        job: The job that waits.
        table: Free GPUs and shards.
        promises: Starts that must not be delayed.
        now_s: Seconds since the trace began.
    """
    if not table.may_fit(job.gpus, job.shards):
        return None
    end_s = now_s + job.limit_s
    node = table.nodes_with_space(job.gpus, job.shards)
    while node is not None:
        free = all(promise.allows(node, end_s) for promise in promises)
        fitting = table.candidates(node, job.gpus, job.shards) if free else []
        if len(fitting) >= job.gpus:
            return tuple(sorted(fitting[: job.gpus]))
        node = table.nodes_with_space(job.gpus, job.shards, node + 1)
    return None


def promise(
    job: SimulatedJob,
    table: ShardTable,
    running: Running,
    now_s: float,
    began_s: float,
    promises: Sequence[Promise],
) -> Promise | None:
    """Return where and when a job can start at the latest, by the limits of running jobs; None if it never can.

    Args:
        job: The job that waits first.
        table: Free GPUs and shards.
        running: Running jobs with their latest ends.
        now_s: Seconds since the trace began.
        began_s: When the trace began, in seconds since the epoch.
        promises: Planned starts of other jobs; of equal nodes one without is taken.
    """
    promised = {one.node for one in promises}
    found: Promise | None = None
    least = job.shards
    for node in range(0, table.nodes, max(1, table.nodes // SEARCHED_NODES)):
        ready = []
        for gpu in table.gpus_of(node):
            held = running.by_gpu[gpu]
            unseen = 0
            if table.by_kind:
                unseen = sum(shards for _, _, shards in held if not table.sees(shards, least))
            free, at_s = table.free_shards(gpu, job.gpus, least) + unseen, now_s
            for end_s, _, shards in held:
                if free >= least:
                    break
                if table.sees(shards, least):
                    free, at_s = free + table.gained(shards, job.gpus, least), max(now_s, end_s)
            if free >= least:
                ready.append(at_s)
        if len(ready) < job.gpus:
            continue
        start_s = sorted(ready)[job.gpus - 1]
        planned_s = start_s - (start_s + began_s) % RESOLUTION_S
        if found is None or (planned_s, node in promised) < (found.start_s, found.node in promised):
            found = Promise(node=node, start_s=planned_s)
    return found
