"""Detect runs not worth finishing: stuck ones (slow is not stuck), and those whose shared jobs lack MPS."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from lab.jobs import ENDED
from slurm_plugin.core.logs.events import EventKind

PATIENCE_S = 60.0
"""Hooks, backfill and a training's first step all take less."""

Fields = Mapping[str, str]


class Patience:
    """Watches a run for signs of life.

    A run is stuck when jobs are there, none of them has changed its state for PATIENCE_S, no GPU has computed
    anything meanwhile, and Slurm waits for no time at which it may look at a job again.
    """

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._states: dict[int, tuple[str, str]] = {}
        self._alive_s: float | None = None

    def lost(self, now_s: float, seen: Mapping[int, Fields], active: bool) -> str:
        """Return why the run is stuck; "" if it is not.

        Args:
            now_s: Of a clock that only goes forward.
            seen: The jobs by id, as `scontrol show job` has them.
            active: Whether any GPU computes.
        """
        states = {n: (job.get("JobState", ""), job.get("Restarts", "")) for n, job in seen.items()}
        left = {n: job for n, job in seen.items() if job.get("JobState") not in ENDED}
        alive = active or states != self._states or not left or any(map(_waits_for_its_time, left.values()))
        self._states = states
        if alive or self._alive_s is None:
            self._alive_s = now_s
        if now_s - self._alive_s < PATIENCE_S:
            return ""
        reported = ", ".join(
            f"{job.get('JobName')} {job.get('JobState')} {job.get('Reason')}" for job in left.values()
        )
        return f"nothing has happened for {now_s - self._alive_s:.0f} s: {reported}"


def without_mps(prolog_log: Path) -> str:
    """Return the first line of a Prolog's log that says that a job runs without MPS; "" if there is none.

    Such a run would be compared with others in which MPS ran.

    Args:
        prolog_log: The log; it need not exist yet.
    """
    if not prolog_log.exists():
        return ""
    lines = prolog_log.read_text(errors="replace").splitlines()
    return next((line for line in lines if f" {EventKind.WITHOUT_MPS}: " in line), "")


def _waits_for_its_time(job: Fields) -> bool:
    """Return whether Slurm looks at a job only later, as at one that was requeued."""
    at = job.get("EligibleTime", "")
    known = job.get("JobState") == "PENDING" and at[:1].isdigit()
    return known and at > time.strftime("%Y-%m-%dT%H:%M:%S")
