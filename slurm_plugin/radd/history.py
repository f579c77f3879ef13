"""What jobs really needed: the observed peak of each user's models, for when the same job comes again.

One line of JSON per run in `peaks.jsonl` under paths.state. Epilogs append to it where that folder is shared with the
nodes; radd appends what it hears through notes and reads in Slurm's accounts. Every way ends in `refresh`, which reads
on from where it stopped.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path

from slurm_plugin.core.records import MemoryEstimate
from slurm_plugin.estimate import ObservedPeaks

log = logging.getLogger("radd")

JOBS_KNOWN = 20_000
"""How many of the latest jobs are known by their id, so that one that is told of twice counts once."""


class Peaks:
    """Observed peaks by user and profile. Safe to use from several threads."""

    def __init__(self, path: Path, gpu: str) -> None:
        """Start with nothing known; `refresh` reads the file.

        Args:
            path: The file.
            gpu: The site's GPU name, as in rad.toml.
        """
        self._path, self._gpu = path, gpu
        self._lock = threading.Lock()
        self._observed = ObservedPeaks()
        self._read_bytes = 0
        self._complaint = ""
        self._jobs: dict[int, None] = {}

    def knows(self, job_id: int) -> bool:
        """Return whether this job's peak was taken in lately."""
        with self._lock:
            return job_id in self._jobs

    def refresh(self) -> None:
        """Take in lines that were appended since; a damaged line is skipped. For one thread only."""
        try:
            lines = self._new_lines()
        except OSError as exc:
            self._complain(f"{self._path}: {exc.strerror}; radd goes on without what others write there")
            return
        with self._lock:  # not held while a file system makes us wait: submissions need it
            for line in lines:
                self._take(line)

    def _new_lines(self) -> list[bytes]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:  # made by radd, so that radd may read it later
            if file.seek(0, os.SEEK_END) < self._read_bytes:  # a new file in the old one's place
                with self._lock:
                    self._observed, self._read_bytes = ObservedPeaks(), 0
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
        self._read_bytes += len(whole) + 1 if whole else 0
        return whole.splitlines()

    def record(self, user_id: int, profile_key: str, peak_bytes: int, *, job_id: int | None = None) -> None:
        """Remember a run that ended well."""
        job = {} if job_id is None else {"job": job_id}
        line = json.dumps({**job, "user": user_id, "profile": profile_key, "peak_bytes": peak_bytes}) + "\n"
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as exc:
            self._complain(f"{self._path}: {exc.strerror}; peaks are remembered until radd stops")
            with self._lock:
                self._take(line.encode())

    def estimate(self, user_id: int, profile_key: str) -> MemoryEstimate | None:
        """Return the need of a job that this user ran before; None if it is new."""
        with self._lock:
            return self._observed.estimate(user_id, profile_key)

    def _take(self, line: bytes) -> None:
        try:
            run = json.loads(line)
            user_id, profile_key = int(run["user"]), str(run["profile"])
            peak_bytes = int(run["peak_bytes"])
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            return  # half a line after a crash, or a run without a profile
        self._observed.add(user_id, profile_key, peak_bytes=peak_bytes)
        if isinstance(run.get("job"), int):
            self._jobs[run["job"]] = None
            while len(self._jobs) > JOBS_KNOWN:
                del self._jobs[next(iter(self._jobs))]

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            log.warning("%s", text)
            self._complaint = text
