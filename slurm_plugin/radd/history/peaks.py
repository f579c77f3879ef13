"""Observed peak of each user's models, for when the same job is submitted again.

Runs are kept in `peaks.jsonl` under paths.state (core/history/runs.py). Epilogs append to it where that folder is
shared with the nodes; radd appends what it receives in notes and reads in Slurm's accounts. In all cases `refresh`
reads on from where it stopped.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from slurm_plugin.core.booking.verification import partition_mark
from slurm_plugin.core.comments.admin_comment import Note
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.files.append_log import PRIVATE, NewLines, make_file
from slurm_plugin.core.history import runs
from slurm_plugin.core.history.observed import ObservedPeaks, ObservedRuns
from slurm_plugin.core.history.runs import Run
from slurm_plugin.core.logs.once import Complaint
from slurm_plugin.core.records.submission import Booking

log = logging.getLogger("radd")

JOBS_KNOWN = 20_000
"""Number of latest jobs known by id, so that a job reported twice counts once."""


class PeakHistory:
    """Observed peaks by user and profile. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        """Start empty; `refresh` reads the file."""
        self._path = path
        self._lock = threading.Lock()
        self._observed = ObservedPeaks()
        self._lines = NewLines(path)
        self._unread, self._unwritten = (Complaint(lambda wrong: log.warning("%s", wrong)) for _ in range(2))
        self._jobs: dict[int, None] = {}

    def knows(self, job_id: int) -> bool:
        """Return whether this job's peak was recorded recently."""
        with self._lock:
            return job_id in self._jobs

    def refresh(self) -> None:
        """Read lines that were appended since the last call; damaged lines are skipped. For one thread only."""
        try:
            make_file(self._path, PRIVATE)  # by radd, so that radd may read it later
            lines = self._lines.read()
        except OSError as exc:
            self._unread.set(
                f"{self._path}: {exc.strerror}; radd continues without what other programs write there"
            )
            return
        self._unread.set("")
        with self._lock:  # not held during file access: submissions need it
            for line in lines:
                self._take(runs.from_line(line))

    def record(self, run: Run) -> None:
        """Record a run that ended well.

        Args:
            run: What was observed of it, on one GPU.
        """
        try:
            runs.record(self._path, run)
        except OSError as exc:
            self._unwritten.set(f"{self._path}: {exc.strerror}; peaks are remembered until radd stops")
            with self._lock:
                self._take(run)
        else:
            self._unwritten.set("")

    def seen(self, user_id: int, profile_key: str, *, processes: int = 1) -> ObservedRuns | None:
        """Return the record of one process of a job that this user ran before; None if it is new.

        Args:
            user_id: The user.
            profile_key: `ModelProfile.key`.
            processes: Number of processes that share a GPU.
        """
        with self._lock:
            return self._observed.of(user_id, profile_key, processes=processes)

    def _take(self, run: Run | None) -> None:
        if run is None or run.profile_key is None or run.peak_bytes is None:
            return  # half a line after a crash, or a run that does not show its model's need
        self._observed.add(run)
        if run.job_id is not None:
            self._jobs[run.job_id] = None
            while len(self._jobs) > JOBS_KNOWN:
                del self._jobs[next(iter(self._jobs))]


def run_from_note(
    note: Note, booking: Booking | None, config: Config, *, user_id: int, job_id: int, now_s: float
) -> Run | None:
    """Return the run described by an Epilog's note; None if it shows no model's memory need.

    Args:
        note: The note.
        booking: The job's verified booking; None if it has none.
        config: rad.toml; a booking holds marks of partitions, not their names.
        user_id: The job's user.
        job_id: The job.
        now_s: Seconds since the epoch, soon after the end of the run.
    """
    if note.event != "ended" or not note.peak_bytes or booking is None or booking.profile_key is None:
        return None
    marks = {partition_mark(name): name for name in config.partitions}
    names = [marks.get(mark) for mark in booking.partitions]
    return Run(
        user_id=user_id,
        profile_key=booking.profile_key,
        peak_bytes=note.peak_bytes,
        smact=note.smact,
        job_id=job_id,
        estimate_bytes=booking.estimate_bytes,
        cap_bytes=booking.cap_bytes,
        partition=",".join(filter(None, names)) if names and all(names) else None,
        start_s=None if note.ran_s is None else round(now_s - note.ran_s, 3),
        time_s=round(now_s, 3),
        processes=booking.processes,
    )
