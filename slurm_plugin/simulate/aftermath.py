"""Handle jobs that leave their GPUs before their work is done, or never get them."""

from __future__ import annotations

from slurm_plugin.core.records.node import Outcome
from slurm_plugin.core.recovery.classify import next_attempt
from slurm_plugin.simulate.cluster import SimulatedCluster
from slurm_plugin.simulate.jobs import booked_shards
from slurm_plugin.simulate.progress import SimulatedJob, SimulatedRun

FIRST_DELAY_S, LONGEST_DELAY_S = 10.0, 160.0
"""Delay of a requeued job: first and longest; it doubles each time."""
RERUN_S = 5.0
"""From a crash to the earliest start of its rerun."""
REQUEUE_S = 121.0
"""Slurm's delay of a requeued job, which is not cleared for a job that requeues itself."""


def requeue(job: SimulatedJob, now_s: float, least_s: float) -> None:
    """Requeue a job that no GPU could take: it keeps its age, and waits before it is considered again.

    Args:
        job: The job.
        now_s: Seconds since the trace began.
        least_s: Slurm's minimum delay before it can start again.
    """
    delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(job.restart, 10))
    job.restart += 1
    job.requeues += 1
    job.eligible_s = now_s + max(least_s, delay_s)


class WaitingReruns:
    """Requeued jobs, by node: when a GPU is freed, the job that has waited longest is woken (epilog/wake.py)."""

    def __init__(self) -> None:
        """Start empty."""
        self._by_node: dict[int, dict[int, tuple[float, SimulatedJob]]] = {}
        self._node_of: dict[int, int] = {}

    def begin(self, node: int, job: SimulatedJob, earliest_s: float) -> None:
        """Note that a job waits for a GPU of a node.

        Args:
            node: Number of the node.
            job: The job.
            earliest_s: When Slurm can start it there again, in seconds since the trace began.
        """
        self.end(job)
        self._by_node.setdefault(node, {})[job.number] = (earliest_s, job)
        self._node_of[job.number] = node

    def end(self, job: SimulatedJob) -> None:
        """Remove a job that no longer waits; safe to repeat."""
        node = self._node_of.pop(job.number, None)
        if node is not None:
            del self._by_node[node][job.number]

    def wake(self, node: int) -> tuple[SimulatedJob, float] | None:
        """Return the job to start when a GPU of a node is freed, and its earliest start; None if no job waits."""
        rows = self._by_node.get(node)
        if not rows:
            return None
        earliest_s, _, job = min((at_s, number, job) for number, (at_s, job) in rows.items())
        self.end(job)
        return job, earliest_s


def saved(job: SimulatedJob, now_s: float) -> None:
    """Requeue a job that saved at the end of its slot, behind the waiting jobs.

    Args:
        job: The job.
        now_s: Seconds since the trace began.
    """
    job.restart += 1
    job.queued_s = now_s
    job.eligible_s = now_s + REQUEUE_S


def recovers(run: SimulatedRun, cluster: SimulatedCluster, now_s: float) -> bool:
    """Requeue a job that ran out of GPU memory or was stopped, as the Epilog would; it starts from the beginning.

    Args:
        run: Its run.
        cluster: The cluster and RAD's settings.
        now_s: Seconds since the trace began.

    Returns:
        False if it is not rerun.
    """
    job = run.job
    if not cluster.managed or job.booking is None:
        return False
    had_bytes = max(job.booking.memory_bytes or cluster.memory_bytes, run.cap_bytes or 0)
    if run.stopped:
        outcome = Outcome(kind="overrun", peak_bytes=job.peak_bytes, rerun=True)
    else:
        outcome = Outcome(
            kind="gpu-oom",
            pattern="simulated",
            peak_bytes=min(job.peak_bytes, had_bytes),
            attempted_bytes=max(0, job.peak_bytes - had_bytes),
            corroborated=True,
        )
    recovery = next_attempt(job.booking, outcome, cluster.settings)
    if recovery is None:
        return False
    job.booking = recovery.booking
    job.shards = booked_shards(recovery.booking, cluster.settings)
    job.priority = max(job.priority, int(recovery.boost_priority))
    job.restart += 1
    job.left_s = job.trace.duration_s
    job.eligible_s = now_s + RERUN_S
    return True
