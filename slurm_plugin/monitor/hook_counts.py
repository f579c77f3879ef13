"""What the hooks did, counted from their logs: hooks are too short-lived to be asked.

2026-03-01T12:00:00.000 job=12 after=43ms placed stamp shared: GPU-... magm: 120.1 GiB free, SMACT 0.31, 2 neighbours
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.core.units import MIB

HOOKS = ("prolog", "epilog")
EDGES_S = (0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Around the aims (100 ms, 150 ms with NVML) and up to the hooks' own limit."""

_LINE = re.compile(r"^\S+ job=\d+ after=(\d+)ms (.*)$")
_EVENTS = (
    # prolog
    "placed",
    "would place",
    "put back",
    "not put back",
    "left alone",
    "runs without MPS",
    "not released",
    # epilog: how the job ended, and what came of it
    "ok",
    "failed",
    "gpu-oom",
    "host-oom",
    "cancelled",
    "runs again",
    "would run again",
    "not run again",
    "no recovery",
    "not reported",
)
_POLICY = re.compile(r"\b(magm|lug|mug|round_robin|idle)\b(?=:|$)")
_READ_AT_ONCE = 16 * MIB


@dataclass(slots=True)
class Durations:
    """A histogram: how often a hook took how long."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(EDGES_S) + 1))
    sum_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """Count one run."""
        self.counts[bisect_left(EDGES_S, duration_s)] += 1
        self.sum_s += duration_s

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each upper edge and how many runs stayed under it, as Prometheus counts."""
        total = 0
        for edge, count in zip((*EDGES_S, float("inf")), self.counts, strict=True):
            total += count
            yield edge, total


class HookCounts:
    """Counts since this process started; Prometheus copes with the restart."""

    def __init__(self, folder: Path) -> None:
        """Begin at the logs' present end.

        Args:
            folder: paths.log.
        """
        self._paths = {hook: folder / f"{hook}.log" for hook in HOOKS}
        self._offsets = {hook: _size(path) for hook, path in self._paths.items()}
        self.events: Counter[tuple[str, str, str]] = Counter()
        self.durations: dict[str, Durations] = {hook: Durations() for hook in HOOKS}

    def update(self) -> None:
        """Count the lines that came since the last call; a rotated log is read from its start."""
        for hook, path in self._paths.items():
            if _size(path) < self._offsets[hook]:
                self._offsets[hook] = 0
            try:
                with path.open("rb") as file:
                    file.seek(self._offsets[hook])
                    text = file.read(_READ_AT_ONCE)
            except OSError:
                continue
            whole = text[: text.rfind(b"\n") + 1]
            self._offsets[hook] += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                self._count(hook, line)

    def _count(self, hook: str, line: str) -> None:
        match = _LINE.match(line)
        if match is None:
            return
        told = match[2]
        event = next((name for name in _EVENTS if told.startswith(name)), "other")
        policy = _POLICY.search(told) if "place" in event else None
        self.events[hook, event, policy[1] if policy else ""] += 1
        self.durations[hook].add(int(match[1]) / 1000)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
