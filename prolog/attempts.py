"""The attempts to place a job and to start its MPS server: one loop over named attempts.

Most jobs are placed by the first one. Each further attempt has one reason of its own, and `worth_trying` is the one
place that decides whether it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from prolog.place import Placed, PlacementContext, context_of, place_once, reconciled, with_newer_sample
from slurm_plugin.core.records.node import Demand


class Attempt(Enum):
    """One attempt, named after what differs from the attempt before.

    FIRST: From the readings at hand.
    NEWER_SAMPLE: From the monitor's next sample. A job that has just ended is in the last one for up to a second.
    AFTER_RECONCILE: Without allocations of jobs that are gone: their Epilog was lost.
    UNENFORCED: Next to jobs without an enforced limit. A job that Slurm does not requeue, or that was requeued often
        enough, shares as booked: a missing monitor is no reason to fail it.
    WITHOUT_MPS: The MPS server did not start; only the guard limits the job.
    """

    FIRST = "first"
    NEWER_SAMPLE = "newer sample"
    AFTER_RECONCILE = "after reconcile"
    UNENFORCED = "unenforced"
    WITHOUT_MPS = "without MPS"


FOLLOWING: Mapping[Attempt, tuple[Attempt, ...]] = {
    Attempt.FIRST: (
        Attempt.NEWER_SAMPLE,
        Attempt.AFTER_RECONCILE,
        Attempt.UNENFORCED,
        Attempt.WITHOUT_MPS,
    ),
    Attempt.NEWER_SAMPLE: (Attempt.AFTER_RECONCILE, Attempt.UNENFORCED, Attempt.WITHOUT_MPS),
    Attempt.AFTER_RECONCILE: (Attempt.UNENFORCED, Attempt.WITHOUT_MPS),
    Attempt.UNENFORCED: (Attempt.NEWER_SAMPLE, Attempt.AFTER_RECONCILE, Attempt.WITHOUT_MPS),
    Attempt.WITHOUT_MPS: (Attempt.NEWER_SAMPLE, Attempt.AFTER_RECONCILE, Attempt.UNENFORCED),
}
"""What may be tried next, in this order. UNENFORCED and WITHOUT_MPS read the GPUs again, and happen once each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """What the last attempt led to.

    Attributes:
        placed: The GPUs, or why there are none.
        demand: The demand that was placed.
        mps: The job's MPS settings; None if its server did not start.
        requeued: Whether the job was requeued because its limit would not be enforced.
    """

    placed: Placed
    demand: Demand
    mps: Mapping[str, str] | None
    requeued: bool = False


def place_job(
    context: PlacementContext,
    *,
    start_mps: Callable[[Placed], Mapping[str, str] | None],
    requeue: Callable[[Placed], bool],
) -> AttemptResult:
    """Try to place a job until no further attempt is worth it.

    Args:
        context: What the first attempt needs.
        start_mps: Starts MPS for a placed job if required, and returns its settings; None if it did not start.
        requeue: Requeues a job whose limit would not be enforced, and returns whether it did.

    Raises:
        RadError: GPUs or ledger cannot be read or written.
    """
    result = _tried(context, start_mps)
    following = FOLLOWING[Attempt.FIRST]
    while following:
        attempt, following = following[0], following[1:]
        if not worth_trying(attempt, result, context):
            continue
        if attempt is Attempt.UNENFORCED and requeue(result.placed):
            return replace(result, requeued=True)
        prepared = _prepared(attempt, context)
        if prepared is not None:
            context, following = prepared, FOLLOWING[attempt]
            result = _tried(context, start_mps)
    return result


def worth_trying(attempt: Attempt, last: AttemptResult, context: PlacementContext) -> bool:
    """Return whether an attempt could succeed where the last one did not.

    Args:
        attempt: The attempt.
        last: What the last attempt led to.
        context: What that one knew.
    """
    placement = last.placed.placement
    if attempt is Attempt.WITHOUT_MPS:
        return last.mps is None
    if context.observes:
        return False
    if attempt is Attempt.UNENFORCED:
        return placement.unlimited and context.apart
    if attempt is Attempt.NEWER_SAMPLE:
        return placement.lingers and not context.blind and not context.soon.passed()
    return placement.requeue and not context.blind


def _prepared(attempt: Attempt, context: PlacementContext) -> PlacementContext | None:
    """Return what an attempt needs; None if there is nothing new to decide from."""
    if attempt is Attempt.NEWER_SAMPLE:
        return with_newer_sample(context)
    if attempt is Attempt.AFTER_RECONCILE:
        return context if reconciled(context) else None
    unenforced = attempt is Attempt.UNENFORCED
    demand = context.demand if unenforced else replace(context.demand, uncapped=True)
    return context_of(
        context.node, context.job, demand, context.settings, apart=not unenforced, soon=context.soon
    )


def _tried(
    context: PlacementContext, start_mps: Callable[[Placed], Mapping[str, str] | None]
) -> AttemptResult:
    placed = place_once(context)
    mps = {} if context.demand.uncapped else start_mps(placed)
    return AttemptResult(placed=placed, demand=context.demand, mps=mps)
