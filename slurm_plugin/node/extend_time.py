"""Extend the time limit of a job that shared its GPU by the time that sharing cost it, before Slurm ends it.

    RUN/monitor/limits/ID.json     the requested limit of a job and its extension so far (node/time_extension.py)

rad-monitor checks at each reconciliation: it knows which jobs shared a GPU, and for how long. An extension ends with
its run: a job that is queued again has its requested limit, or it would take the longer one to the next node.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from slurm_plugin.core.files.preallocated import SpareFiles
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.node.facts import NodeFacts, read_facts
from slurm_plugin.node.node import Node
from slurm_plugin.node.time_extension import EARLY_S, MINUTE_S, Granted, more_minutes
from slurm_plugin.slurm.time_limits import JobEnd, TimeLimits

AGAIN_S = 60.0
"""A job that is suspended, or has no limit yet, is queried again after this time."""

KEPT_S = 24 * 3600.0
"""A job without an allocation here for a day does not come back to this node."""


class MoreTime:
    """Time limit extensions of the shared jobs of this node."""

    def __init__(
        self, node: Node, *, shared_s: Callable[[int], float], log_event: Callable[[EventKind, str], None]
    ) -> None:
        """Continue from the extensions recorded so far.

        Args:
            node: This node.
            shared_s: Returns how long a job's run shared a GPU with another user's job, in seconds.
            log_event: Takes a line for the log.
        """
        self._node = node
        self._shared_s = shared_s
        self._log_event = log_event
        self._folder = node.run / "monitor" / "limits"
        self._files = SpareFiles(node.run)
        self._ends_s: dict[tuple[int, int], float] = {}
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)  # as long as there is space for a folder

    def look(self) -> None:
        """Raise the limits of jobs that are near their end.

        Raises:
            SlurmError: Slurm does not answer; the next call asks again.
            OSError: An extension cannot be recorded, so none is given.
        """
        present = self._node.store.read().ledger.allocations
        shared = {(one.job_id, one.restart) for one in present if one.kind == "shared" and one.managed}
        self._ends_s = {run: end_s for run, end_s in self._ends_s.items() if run in shared}
        now_s = self._node.clock.now_s()
        for run in shared:
            shared_s = self._shared_s(run[0])
            if shared_s and self._ends_s.get(run, now_s) - now_s <= EARLY_S:
                self._ends_s[run] = self._look_at(run[0], shared_s, now_s)
        here = {one.job_id for one in present}
        self._take_back(here)
        self._forget(here, now_s)

    def _look_at(self, job_id: int, shared_s: float, now_s: float) -> float:
        """Give a job the extension that it is due, and return when it ends."""
        slurm = TimeLimits(self._node.slurm())
        end = slurm.of(job_id)
        settings = None if end is None else self._node.config.partition(end.partition)
        if end is None or settings is None:
            return now_s + EARLY_S + AGAIN_S
        granted = self._read(job_id) or Granted(requested_s=end.limit_s)

        def minutes(margin_s: float) -> int:
            return more_minutes(
                granted,
                shared_s=shared_s,
                left_s=end.end_s - now_s,
                factor=settings.time_limit_factor,
                margin_s=margin_s,
            )

        more = minutes(float("inf"))
        if more:
            name = (read_facts(self._node) or NodeFacts()).name
            more = minutes(slurm.margin_s(end, node=name, now_s=now_s))
        if more:
            self._give(slurm, job_id, end, granted, more)
        return end.end_s + more * MINUTE_S

    def _give(self, slurm: TimeLimits, job_id: int, end: JobEnd, granted: Granted, minutes: int) -> None:
        """Raise a job's limit; it is recorded first, so that no job gets the same minutes twice."""
        given = replace(granted, granted_s=granted.granted_s + minutes * MINUTE_S)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files.write(self._path(job_id), json.dumps(asdict(given)).encode())
        slurm.add(job_id, minutes)
        limit = int((end.limit_s + minutes * MINUTE_S) // MINUTE_S)
        requested_min = int(granted.requested_s // MINUTE_S)
        self._log_event(
            EventKind.MORE_TIME,
            f"job {job_id} shared its GPU: its limit is {limit} minutes now, it requested {requested_min}",
        )

    def _read(self, job_id: int) -> Granted | None:
        try:
            row = json.loads(self._path(job_id).read_bytes())
            requested_s = row["requested_s" if "requested_s" in row else "asked_s"]  # of an older release
            return Granted(requested_s=float(requested_s), granted_s=float(row["granted_s"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _take_back(self, present: set[int]) -> None:
        """Restore the requested limits of jobs that are queued again; a limit that the user changed stays."""
        written = {int(path.stem) for path in self._folder.glob("*.json") if path.stem.isdecimal()}
        given = {
            job_id: granted for job_id in written - present if (granted := self._read(job_id)) is not None
        }
        if not given:
            return
        slurm = TimeLimits(self._node.slurm())
        for job_id, limit_s in slurm.waiting(given).items():
            granted = given[job_id]
            if limit_s == granted.requested_s + granted.granted_s:
                slurm.set(job_id, int(granted.requested_s // MINUTE_S))
            self._files.discard(self._path(job_id))

    def _forget(self, present: set[int], now_s: float) -> None:
        """Remove the records of jobs that have been gone for long."""
        for path in self._folder.glob("*.json"):
            with suppress(OSError, ValueError):
                if int(path.stem) not in present and abs(now_s - path.stat().st_mtime) > KEPT_S:
                    self._files.discard(path)

    def _path(self, job_id: int) -> Path:
        return self._folder / f"{job_id}.json"
