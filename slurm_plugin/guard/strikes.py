"""Confirm violations: one counts once two samples agree on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slurm_plugin.guard.violation import Violation, ViolationKind

NEEDED = 2
"""Samples needed: in a single one, a pid may have changed its owner between two queries."""

REMEMBERED_S = 30.0
"""Long enough to catch a job that alternately takes and releases memory."""

AGAIN_AFTER_S = 5.0
"""Time that a stopped job may take to end; then it is stopped again."""

Key = tuple[ViolationKind, int | None, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """Confirmation count of one violation.

    Attributes:
        count: Samples that showed it.
        last_s: The last of them, on the monotonic clock.
        notified_s: When it was last passed on; None if never.
        stops: Whether the job was stopped then; otherwise it was a warning.
    """

    count: int
    last_s: float
    notified_s: float | None = None
    stops: bool = False


def key_of(violation: Violation) -> Key:
    """Return what makes two violations the same: the run of a job, or an unmanaged process, on one GPU."""
    subject = violation.job_id if violation.job_id is not None else -violation.processes[0].pid
    return violation.kind, subject, violation.restart, violation.gpu


def confirmed(
    found: Iterable[Violation], strikes: Mapping[Key, Strike], *, now_s: float
) -> tuple[dict[Key, Strike], tuple[Violation, ...]]:
    """Return the updated strikes, and the confirmed violations that must be acted on.

    Args:
        found: Violations in this sample.
        strikes: Violations before it.
        now_s: The monotonic clock.
    """
    after = {key: strike for key, strike in strikes.items() if now_s - strike.last_s <= REMEMBERED_S}
    sure = []
    for violation in found:
        key = key_of(violation)
        before = after.get(key, Strike(count=0, last_s=now_s))
        seen = replace(before, count=before.count + 1, last_s=now_s)
        stops = violation.response != "warn"
        if seen.count >= NEEDED and _is_due(before, stops=stops, now_s=now_s):
            seen = replace(seen, notified_s=now_s, stops=stops)
            sure.append(violation)
        after[key] = seen
    return after, tuple(sure)


def _is_due(before: Strike, *, stops: bool, now_s: float) -> bool:
    """Return whether to act now: warn once; stop at once, and repeat from time to time."""
    if before.notified_s is None:
        return True
    return stops and (not before.stops or now_s - before.notified_s >= AGAIN_AFTER_S)
