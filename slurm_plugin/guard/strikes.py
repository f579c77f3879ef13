"""From what is wrong in one sample to what is sure: a finding counts once two samples agree on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
    """

    count: int
    last_s: float
    told_s: float | None = None


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
        before = after.get(key)
        count, told_s = (before.count, before.told_s) if before else (0, None)
        if count + 1 >= NEEDED and (
            told_s is None or (finding.response != "warn" and now_s - told_s >= AGAIN_AFTER_S)
        ):
            told_s = now_s
            sure.append(finding)
        after[key] = Strike(count=count + 1, last_s=now_s, told_s=told_s)
    return after, tuple(sure)
