"""Count the hooks' events from their logs: hooks are too short-lived to be queried."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.core.files.append_log import NewLines
from slurm_plugin.core.logs.events import Entry, EventKind, from_line
from slurm_plugin.core.logs.hook_log import EVENTS
from slurm_plugin.monitor.export.status import Happened

HOOKS = ("prolog", "epilog")
EDGES_S = (0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Around the targets (100 ms, 150 ms with NVML) and beyond the hooks' own limit."""

REPORTED = frozenset(
    {
        EventKind.REQUEUED,
        EventKind.GPU_OOM,
        EventKind.VICTIM,
        EventKind.OVERRUN,
        EventKind.RUNS_AGAIN,
        EventKind.NOT_RUN_AGAIN,
    }
)
"""Events of interest to people: jobs that did not simply run to their end."""

MOST_EVENTS = 50


@dataclass(slots=True)
class Durations:
    """A histogram of the hooks' run times."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(EDGES_S) + 1))
    sum_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """Count one run."""
        self.counts[bisect_left(EDGES_S, duration_s)] += 1
        self.sum_s += duration_s

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each upper edge and the number of runs below it, as Prometheus counts."""
        total = 0
        for edge, count in zip((*EDGES_S, float("inf")), self.counts, strict=True):
            total += count
            yield edge, total


class HookCounts:
    """Counts since this process started, or of all events kept; Prometheus handles a count that falls.

    `latest` has the last job of each count, and when.
    """

    def __init__(self, folder: Path, *, from_end: bool = True) -> None:
        """Prepare.

        Args:
            folder: paths.log.
            from_end: Begin at the present end of the events; False for a program that looks only once.
        """
        self._lines = NewLines(folder / EVENTS, from_end=from_end)
        self.events: Counter[tuple[str, str, str]] = Counter()
        self.latest: dict[tuple[str, str, str], tuple[int, float]] = {}
        self.durations: dict[str, Durations] = {hook: Durations() for hook in HOOKS}
        self.happened: deque[Happened] = deque(maxlen=MOST_EVENTS)

    def update(self) -> None:
        """Count the events that came since the last call."""
        try:
            lines = self._lines.read()
        except OSError:
            return
        for line in lines:
            entry = from_line(line)
            if entry is not None:
                self._count(entry)

    def _count(self, entry: Entry) -> None:
        if entry.event.kind == EventKind.END:
            self.durations.setdefault(entry.hook, Durations()).add(entry.after_ms / 1000)
            return
        if entry.event.kind in REPORTED:
            entry_event = Happened(time_s=entry.time_s, job_id=entry.job_id, event=entry.event.kind.value)
            self.happened.append(entry_event)
        policy = entry.event.facts.get("policy") or ""
        key = entry.hook, entry.event.kind.value, str(policy)
        self.events[key] += 1
        if entry.job_id:
            self.latest[key] = entry.job_id, entry.time_s
