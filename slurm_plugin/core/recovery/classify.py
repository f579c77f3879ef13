"""Diagnose why a job ended and choose its next attempt: pure functions of what is known at its end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpumemnet.records import frozen, replace
from slurm_plugin.core.booking.confidence import ESCALATION_MARGIN_BYTES
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.records.node import Allocation, Diagnosis, Outcome, Recovery
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.recovery.oom_patterns import OomPattern, last_found
from slurm_plugin.core.text import one_line
from slurm_plugin.core.units import human, shards_for

CORROBORATING_SHARE = 0.8
"""If a job's peak reached this share of its limit, it did run out of memory: the monitor samples once a second, so the
last allocations before the end are often missed."""

_EVIDENCE_LIMIT = 200
_CANCELLING_SIGNALS = (2, 9, 15)  # sent to the batch script by scancel, a time limit and preemption
_CUT_SHORT = r"^(?:slurmstepd(?:-\S+)?:|\[[^]\n]*\]) error: \*\*\* JOB {} ON \S+ CANCELLED AT "
"""What slurmstepd writes into the output of a batch script that it sends SIGTERM or SIGKILL (seen on 22.05.8, 24.11.5
and, with the time in the place of its name, 26.05.5): scancel, preemption, a time limit, a requeue. A trap may end the
script with any status after that."""


@frozen
class Ending:
    """What is known of a job when it ends.

    Attributes:
        exit_status: Wait status of the batch script; None if unknown. Slurm also reports 0 for a job that is cancelled,
            preempted or at its time limit, and ends the script only then.
        derived_exit: Highest exit status of its steps.
        peak_bytes: Highest GPU memory that the monitor saw of it; None without a monitor.
        limit_bytes: Memory guaranteed to it: its booking, or the whole GPU; None if unknown.
        user_id: The job's user; None if unknown.
        diagnosis: The monitor's finding; None if there is none.
        job_id: The job; None if its output is not searched.
        requeued: Whether it was requeued already: by its user, an admin, a preemption.
    """

    exit_status: int | None
    derived_exit: int = 0
    peak_bytes: int | None = None
    limit_bytes: int | None = None
    user_id: int | None = None
    diagnosis: Diagnosis | None = None
    job_id: int | None = None
    requeued: bool = False


def classify(ending: Ending, tails: Sequence[str], patterns: Sequence[OomPattern]) -> Outcome:
    """Return why a job ended.

    Args:
        ending: Exit statuses and the monitor's record.
        tails: The last part of each of its output files.
        patterns: The texts of OOM errors.
    """
    cancelled = ending.requeued or _cut_short(ending, tails)
    if not ending.exit_status and not ending.derived_exit:
        return Outcome(kind="cancelled" if cancelled else "ok", peak_bytes=ending.peak_bytes)
    judged = _judged(ending, cancelled=cancelled)
    if judged is not None:
        return judged
    # The last error counts: a script may continue after a refused GPU allocation, and fail for lack of other memory.
    found = last_found(tails, [one for one in patterns if one.kind == "host" or not cancelled])
    if found is None:
        return Outcome(kind="cancelled" if cancelled else "failed", peak_bytes=ending.peak_bytes)
    outcome = Outcome(
        kind="host-oom",
        evidence=_evidence(found.line),
        pattern=found.pattern.name,
        peak_bytes=ending.peak_bytes,
    )
    if found.pattern.kind == "host":
        return outcome
    return replace(
        outcome,
        kind="gpu-oom",
        attempted_bytes=found.attempted_bytes,
        corroborated=_corroborated(ending),
    )


def _cut_short(ending: Ending, tails: Sequence[str]) -> bool:
    """Return whether a job was ended from outside: by its exit status, or by slurmstepd's line in its output."""
    if (ending.exit_status or 0) & 0x7F in _CANCELLING_SIGNALS:  # low seven bits of a wait status, wait(2)
        return True
    line = re.compile(_CUT_SHORT.format(ending.job_id), re.MULTILINE)
    return ending.job_id is not None and any(map(line.search, tails))


def _judged(ending: Ending, *, cancelled: bool) -> Outcome | None:
    """Return how a job ended according to the monitor's verdict; None if there is none that explains this end."""
    diagnosis = ending.diagnosis
    if diagnosis is None or (diagnosis.kind == "victim" and cancelled):
        return None  # a cancelled job is not wanted back
    return Outcome(
        kind=diagnosis.kind,
        evidence=_evidence(diagnosis.detail),
        peak_bytes=ending.peak_bytes,
        corroborated=diagnosis.culprit_user_id not in (None, ending.user_id),
        culprit=diagnosis.culprit,
        rerun=diagnosis.rerun,
    )


def _corroborated(ending: Ending) -> bool:
    if ending.peak_bytes is None or ending.limit_bytes is None:
        return False
    return ending.peak_bytes >= CORROBORATING_SHARE * ending.limit_bytes


def as_allocated(booking: Booking, allocation: Allocation | None) -> Booking:
    """Return a booking with the size of its job's real allocation, which a change of the request may have changed.

    Args:
        booking: As signed at submission.
        allocation: The job's allocation on this node; None if unknown.
    """
    if allocation is None:
        return booking
    if allocation.kind == "whole":
        return replace(booking, kind="whole", memory_bytes=None, cap_bytes=None)
    return replace(
        booking, kind="shared", memory_bytes=allocation.booked_bytes, cap_bytes=allocation.cap_bytes
    )


def unsigned(allocation: Allocation | None, outcome: Outcome) -> Booking | None:
    """Return what a job without a booking had, if the guard or another job caused its end; otherwise None.

    It was sized by hand, or while radd was unavailable. Failures of its own are left to Slurm, as without RAD.

    Args:
        allocation: Its allocation on this node; None if unknown.
        outcome: Why it ended.
    """
    if allocation is None or not allocation.managed or outcome.kind not in ("overrun", "idle", "victim"):
        return None
    return as_allocated(Booking(kind=allocation.kind, gpus=len(allocation.gpus)), allocation)


def next_attempt(booking: Booking, outcome: Outcome, partition: PartitionConfig) -> Recovery | None:
    """Return how a job is run again, or None if it is not.

    A priority boost is given only if the failure was not the user's fault: caused by another job, or by a size that RAD
    estimated or that earlier runs made plausible. A size that the user chose is the user's responsibility.

    Args:
        booking: What it had.
        outcome: Why it ended.
        partition: The partition's settings.
    """
    if partition.recovery == "off" or not booking.retry:
        return None
    if outcome.kind == "victim" and outcome.server_ends:
        reason = "failed with its MPS server, requeued"
        return Recovery(booking=booking, boost_priority=outcome.corroborated, reason=reason)
    if outcome.kind == "victim":
        by = "" if outcome.culprit is None else f" (job {outcome.culprit})"
        reason = f"failed because of another job{by}, requeued unchanged"
        return Recovery(booking=booking, boost_priority=outcome.corroborated, reason=reason)
    if outcome.kind == "idle" and outcome.rerun:
        return Recovery(booking=booking, boost_priority=False, reason="was idle, requeued unchanged")
    overrun = outcome.kind == "overrun" and outcome.rerun
    if outcome.kind != "gpu-oom" and not overrun:
        return None
    sizes, least_bytes = partition.sizes, outcome.least_bytes
    small = booking.gpus == 1 and sizes[0].capacity_bytes < least_bytes <= sizes[-1].capacity_bytes
    if (booking.kind == "whole" and not small) or booking.recoveries >= partition.max_recoveries:
        return None  # a whole GPU was not enough, so another one is not either
    larger_bytes = _escalated(booking, outcome, partition)
    following = replace(
        booking,
        kind="whole" if larger_bytes is None else "shared",
        memory_bytes=larger_bytes,
        cap_bytes=None,
        recoveries=booking.recoveries + 1,
    )
    own = "a whole GPU" if booking.gpus == 1 else f"{booking.gpus} whole GPUs"
    share = own if larger_bytes is None else human(larger_bytes)
    why = "used more GPU memory than it booked" if overrun else f"out of GPU memory ({outcome.pattern})"
    return Recovery(
        booking=following,
        boost_priority=not overrun and outcome.corroborated and _came_near_estimate(booking, outcome),
        reason=f"{why}, requeued with {share}",
    )


def _came_near_estimate(booking: Booking, outcome: Outcome) -> bool:
    """Return whether a job really used what RAD's estimate or earlier runs predicted."""
    if booking.basis == "requested" or booking.estimate_bytes is None or outcome.peak_bytes is None:
        return False
    return outcome.peak_bytes >= CORROBORATING_SHARE * booking.estimate_bytes


def _escalated(booking: Booking, outcome: Outcome, partition: PartitionConfig) -> int | None:
    """Return the memory of a rerun that still shares, in whole shards; None if it gets a whole GPU.

    A job that was stopped below its limit has no refused allocation: it books the limit. If CUDA itself and no
    framework refused memory, the refused size is unknown: a job that was near its limit gets the margin.
    """
    shared = booking.kind == "shared"
    first_try = partition.recovery == "escalate" and shared and booking.recoveries == 0
    seen_bytes = outcome.peak_bytes or booking.memory_bytes
    if not first_try or seen_bytes is None:
        return None
    cap_bytes = booking.cap_bytes or 0
    limit_bytes = max(booking.memory_bytes or 0, cap_bytes)
    near = 0 < CORROBORATING_SHARE * limit_bytes <= (outcome.peak_bytes or 0)
    if outcome.attempted_bytes is not None or (outcome.kind == "gpu-oom" and near):
        seen_bytes = max(seen_bytes, booking.memory_bytes or 0)
        need_bytes = seen_bytes + (outcome.attempted_bytes or 0) + ESCALATION_MARGIN_BYTES
    elif outcome.kind == "overrun" and seen_bytes <= cap_bytes:
        need_bytes = cap_bytes
    else:
        return None
    shards = shards_for(need_bytes, partition.shard_bytes)
    return shards * partition.shard_bytes if shards < partition.shards else None


def _evidence(line: str) -> str:
    return one_line(line, _EVIDENCE_LIMIT)
