"""From what is wrong in one sample to what is sure: a finding counts once two samples agree on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slurm_plugin.guard.finding import Finding, Kind

NEEDED = 2
"""Samples: one alone may have met a pid that changed its owner between two questions."""

REMEMBERED_S = 30.0
"""A job that takes and gives back in turns is known by then."""

AGAIN_AFTER_S = 5.0
"""A job that was told to go may take so long; then it is told again."""

Key = tuple[Kind, int | None, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """How often one thing was found.

    Attributes:
        count: Samples that showed it.
        last_s: The last of them, on the monotonic clock.
        told_s: When it was last handed on; None if never.
        stops: Whether the job was told to go then; else it was a warning.
    """

    count: int
    last_s: float
    told_s: float | None = None
    stops: bool = False


def key_of(finding: Finding) -> Key:
    """Return what makes two findings the same: the run of a job, or an unmanaged process, on one GPU."""
    who = finding.job_id if finding.job_id is not None else -finding.processes[0].pid
    return finding.kind, who, finding.restart, finding.gpu


def confirmed(
    found: Iterable[Finding], strikes: Mapping[Key, Strike], *, now_s: float
) -> tuple[dict[Key, Strike], tuple[Finding, ...]]:
    """Return the strikes after one more sample, and the findings that are sure by now and to be acted on.

    Args:
        found: What is wrong in this sample.
        strikes: What was wrong before.
        now_s: The monotonic clock.
    """
    after = {key: strike for key, strike in strikes.items() if now_s - strike.last_s <= REMEMBERED_S}
    sure = []
    for finding in found:
        key = key_of(finding)
        before = after.get(key, Strike(count=0, last_s=now_s))
        seen = replace(before, count=before.count + 1, last_s=now_s)
        stops = finding.response != "warn"
        if seen.count >= NEEDED and _is_due(before, stops=stops, now_s=now_s):
            seen = replace(seen, told_s=now_s, stops=stops)
            sure.append(finding)
        after[key] = seen
    return after, tuple(sure)


def _is_due(before: Strike, *, stops: bool, now_s: float) -> bool:
    """Return whether it is said now: a warning once, and that a job must go at once and then from time to time."""
    if before.told_s is None:
        return True
    return stops and (not before.stops or now_s - before.told_s >= AGAIN_AFTER_S)
