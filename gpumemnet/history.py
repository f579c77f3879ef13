"""What jobs really needed: the observed peak of a job that comes again beats any estimate.

One JSON object per line in a file that only grows; the last lines are read back once and kept in memory. Keyed by
user, profile and GPU type: the same user training the same model in the same way.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from gpumemnet.units import MIB

MARGIN = 1.05
"""Runs of one job differ by a few per cent: data order, fragmentation, a longer last batch."""
LEAST_MARGIN_BYTES = 256 * MIB
MAX_KEYS = 100_000
MAX_READ_BYTES = 64 * MIB
"""Of a longer file only the end is read: the most recent runs."""

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of one job's earlier runs.

    Attributes:
        peak_bytes: Highest peak seen.
        runs: How many runs.
        estimate_bytes: What was estimated for the last one.
    """

    peak_bytes: int
    runs: int
    estimate_bytes: int

    @property
    def upper_bytes(self) -> int:
        """The bound to book for the next run: the peak with a margin."""
        return max(int(self.peak_bytes * MARGIN), self.peak_bytes + LEAST_MARGIN_BYTES)


class History:
    """Observed peaks, in memory and in a file."""

    def __init__(self, path: Path | None) -> None:
        """Read what the file holds.

        Args:
            path: The file; made on the first record. None keeps nothing beyond this process.
        """
        self._path = path
        self._known: OrderedDict[Key, Observation] = OrderedDict()
        for line in _tail(path) if path is not None else ():
            self._take(line)

    def record(self, *, user: str, profile_key: str, gpu: str, estimate_bytes: int, peak_bytes: int) -> None:
        """Add one finished run.

        Args:
            user: Its owner.
            profile_key: `ModelProfile.key`.
            gpu: Type of GPU.
            estimate_bytes: What was estimated.
            peak_bytes: What it used at its peak; a run cut short by lack of memory must not be recorded.
        """
        line = json.dumps(
            {
                "user": user,
                "profile": profile_key,
                "gpu": gpu,
                "estimate": estimate_bytes,
                "peak": peak_bytes,
            },
            separators=(",", ":"),
        )
        self._take(line)
        if self._path is not None:
            # One write below PIPE_BUF in append mode: lines of several writers do not mix.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                os.write(descriptor, line.encode() + b"\n")
            finally:
                os.close(descriptor)

    def observed(self, *, user: str, profile_key: str, gpu: str) -> Observation | None:
        """Return what earlier runs of the same job needed; None if there were none."""
        return self._known.get((user, profile_key, gpu))

    def _take(self, line: str) -> None:
        try:
            entry = json.loads(line)
            key = (str(entry["user"]), str(entry["profile"]), str(entry["gpu"]))
            peak, estimate = int(entry["peak"]), int(entry["estimate"])
        except (ValueError, KeyError, TypeError, OverflowError):
            return  # half a line after a crash, or not ours
        if peak <= 0:
            return
        before = self._known.pop(key, None)
        self._known[key] = Observation(
            peak_bytes=max(peak, before.peak_bytes if before else 0),
            runs=(before.runs if before else 0) + 1,
            estimate_bytes=estimate,
        )
        if len(self._known) > MAX_KEYS:
            self._known.popitem(last=False)


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_READ_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
