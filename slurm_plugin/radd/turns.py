"""Compute the priority boost that restores a requeued job's position in the queue. No I/O.

The priority lost by the requeue is restored through the job's nice value until the job starts. With ages, the loss is
the difference of two ages, from first submission and from the requeue, as far as Slurm shows it by now. Under
priority/basic, where every job has a distinct priority, it is the difference to the former priority. Equals start in
the order of their submission times, which cannot be set: a job passes those that came after it by one point, unless
that would put it ahead of a job that came earlier and still waits. No job is raised above its former position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial

from slurm_plugin.core.records.queue_position import Turn
from slurm_plugin.slurm.control import Standing
from slurm_plugin.slurm.time_limits import parse_limit_s

_CANNOT_START = ("BeginTime", "Dependency")
"""Jobs that wait for one of these block no other job now (held jobs have no priority)."""

SLACK_S = 10.0
"""Time that Slurm may take to compute all priorities."""

LEAST = 1
"""Slurm shows no waiting job a lower priority, unless it is held. Where all weights are 0, the first point of a boost
does not show (22.05.8, 24.11.5 and 26.05.5), and passing an equal takes another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ageing:
    """How this Slurm computes priorities from ages.

    Attributes:
        basic: Whether it does not: priority/basic numbers its jobs.
        weight: Points for the longest wait.
        longest_s: Wait after which no more points are added.
        every_s: How often priorities are recomputed.
        from_submission: Whether waits count that could not have ended (PriorityFlags=ACCRUE_ALWAYS).
    """

    basic: bool
    weight: int
    longest_s: float
    every_s: float = 0.0
    from_submission: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Ageing:
        """Return the settings in `scontrol show config`."""
        weight = config.get("PriorityWeightAge", "0")
        return cls(
            basic=config.get("PriorityType", "") == "priority/basic",
            weight=int(weight) if weight.isdigit() else 0,
            longest_s=parse_limit_s(config.get("PriorityMaxAge", "")) or 0.0,
            every_s=parse_limit_s(config.get("PriorityCalcPeriod", "")) or 0.0,
            from_submission="ACCRUE_ALWAYS" in config.get("PriorityFlags", ""),
        )

    def points(self, *, submitted_s: int, accrues_s: int | None, now_s: float) -> float:
        """Return the points that a wait has earned at a time.

        Args:
            submitted_s: When the job was submitted, seconds since the epoch.
            accrues_s: From when its age counts; None if it has none.
            now_s: The time.
        """
        since_s = submitted_s if self.from_submission else accrues_s
        if since_s is None or self.longest_s <= 0:
            return 0.0
        return self.weight * min(1.0, max(0.0, now_s - since_s) / self.longest_s)


def overrun_gpus(turn: Turn, job: Standing, ageing: Ageing, *, now_s: float) -> int:
    """Return the points that a job lost by the requeue, as priorities show by now, and never more.

    Slurm recomputes all priorities once in ageing.every_s; a change of a job's nice value recomputes only that job's
    (24.11.5). So others may be shown as they were up to that long ago, and this job as it is now or, soon after the
    requeue, as it was before. What is not certain is not restored: a job loses at most ageing.every_s of its age.

    Args:
        turn: Its former queue position.
        job: Its current one.
        ageing: How ages count.
        now_s: Seconds since the epoch.
    """
    gone = turn.priority - (job.priority + job.nice)
    if not ageing.basic:
        had = ageing.points(
            submitted_s=turn.submitted_s, accrues_s=turn.accrues_s, now_s=now_s - ageing.every_s
        )
        has = ageing.points(submitted_s=job.submitted_s, accrues_s=job.accrues_s, now_s=now_s)
        computed = now_s - job.submitted_s > ageing.every_s + SLACK_S
        gone = int(had - has) if computed else min(gone, int(had - has))
    return max(0, gone)


def lifts(
    turns: Mapping[int, Turn],
    waiting: Collection[Standing],
    boosted: Mapping[int, int],
    ageing: Ageing,
    meeting: Iterable[Collection[str]],
    *,
    now_s: float,
) -> dict[int, int]:
    """Return the raise, in points, of each requeued job; held jobs are left out.

    Args:
        turns: The former queue position of each, by job id.
        waiting: All waiting jobs.
        boosted: Points by which each is raised already. A raise by an admin or user since then reduces what is missing.
        ageing: How ages count.
        meeting: The partitions of each node: only jobs that may share a node have an order.
        now_s: Seconds since the epoch.
    """
    requeued = [
        _requeued(job, turns[job.job_id], boosted.get(job.job_id, 0), ageing, now_s=now_s)
        for job in waiting
        if job.job_id in turns and job.priority
    ]
    others = [
        (job, job.priority)
        for job in waiting
        if not (job.job_id in turns and job.priority) and job.priority and job.reason not in _CANNOT_START
    ]
    nodes = {frozenset(partitions) for partitions in meeting}
    meet = cache(partial(_meet, nodes))
    placed: list[tuple[Standing, int]] = []
    found = {}
    most_ties = len(waiting) + LEAST
    for each in sorted(requeued, key=lambda each: each.order):  # from the last position to the first
        points = _points(
            each,
            [row for row in others if meet(each.job.partition, row[0].partition)],
            [row for row in placed if meet(each.job.partition, row[0].partition)],
        )
        placed.append((each.job, points))
        raised = min(points - each.unboosted, each.missing + most_ties)
        found[each.job.job_id] = raised if points > LEAST else 0
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Requeued:
    """A requeued job that waits.

    Attributes:
        job: Its current queue position.
        turn: Its former one.
        unboosted: Its priority without RAD's boost.
        missing: Points that it lost by the requeue and that nothing else restored.
    """

    job: Standing
    turn: Turn
    unboosted: int
    missing: int

    @property
    def restored(self) -> int:
        """Return its priority with what it lost."""
        return max(LEAST, self.unboosted + self.missing)

    @property
    def order(self) -> tuple[int, int, int]:
        """Return a key that sorts by former position, the last one first."""
        return self.restored, -self.turn.submitted_s, -self.job.job_id


def _requeued(job: Standing, turn: Turn, boosted: int, ageing: Ageing, *, now_s: float) -> _Requeued:
    raised_by_other_boosts = max(0, turn.nice - job.nice - boosted)
    missing = max(0, overrun_gpus(turn, job, ageing, now_s=now_s) - raised_by_other_boosts)
    return _Requeued(job=job, turn=turn, unboosted=job.priority - boosted, missing=missing)


def _points(
    each: _Requeued, others: Iterable[tuple[Standing, int]], placed: Iterable[tuple[Standing, int]]
) -> int:
    """Return the priority that a requeued job gets: above the jobs behind its former position, and no higher.

    Args:
        each: The job.
        others: Jobs that were not requeued, with their priorities.
        placed: Requeued jobs whose former position was behind this one's, with the priorities that they get.
    """
    passes = list(placed)
    limits = []
    for other, priority in others:
        if (-priority, other.submitted_s) < (-each.restored, each.turn.submitted_s):
            limits.append(priority if _wins_tie(other, each.job) else priority - 1)
        else:
            passes.append((other, priority))
    least = max((priority + _wins_tie(other, each.job) for other, priority in passes), default=LEAST)
    points = min([max(each.restored, least), *limits])
    return max(points, LEAST, each.unboosted)


def _wins_tie(other: Standing, job: Standing) -> bool:
    """Return whether Slurm starts another job of the same priority first."""
    return (other.submitted_s, other.job_id) < (job.submitted_s, job.job_id)


def _meet(nodes: Iterable[frozenset[str]], one: str, other: str) -> bool:
    """Return whether jobs of two lists of partitions may share a node, by the partitions of each."""
    mine, others = set(one.split(",")), set(other.split(","))
    return bool(mine & others) or any(mine & node and others & node for node in nodes)
