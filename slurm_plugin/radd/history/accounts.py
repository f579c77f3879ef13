"""Read the peaks of nodes that share no folder with radd from Slurm's accounts, where Epilogs write them.

It needs slurmdbd, and `AccountingStoreFlags=job_comment`, because a job's comment says which model ran.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from slurm_plugin.core.clock import Clock, SystemClock
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.comments.admin_comment import Note, read_signed
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import RadError
from slurm_plugin.core.logs.once import Complaint
from slurm_plugin.core.process.background import in_background
from slurm_plugin.radd.history.peaks import PeakHistory, run_from_note
from slurm_plugin.slurm.queries.accounting import Accounts, EndedJob

log = logging.getLogger("radd")

EVERY_S = 30.0
FIRST_S = 3600
"""How far back to look when radd starts."""
AGAIN_S = 300
"""How far back to look each time: an Epilog's note may reach the database some time after the job's end."""
MOST_S = 24 * 3600
"""How far back to look at most, after the database did not answer for a while."""
AT_ONCE = 500
"""Most jobs whose comments are requested in one command."""


class AccountsReader:
    """A dedicated thread, because sacct may take seconds."""

    def __init__(
        self, accounts: Accounts, peaks: PeakHistory, config: Callable[[], Config], clock: Clock | None = None
    ) -> None:
        self._accounts, self._peaks, self._config = accounts, peaks, config
        self._clock = clock or SystemClock()
        self._seen: set[int] = set()
        self._looked_s: float | None = None
        self._stopping = threading.Event()
        self._complaint = Complaint(lambda wrong: log.warning("accounts not read: %s", wrong))

    def start(self) -> None:
        """Look from time to time, in the background."""
        in_background("radd-accounts", self._work, log=log)

    def stop(self) -> None:
        """Stop looking."""
        self._stopping.set()

    def learn(self) -> None:
        """Look once, and record the peaks of jobs that were not seen before.

        Raises:
            RadError: sacct failed, or the cluster's key cannot be read.
        """
        config = self._config()
        if not config.features.history:
            return
        now_s = self._clock.monotonic_s()
        ended = {job.job_id: job for job in self._accounts.completed(look_back_s(self._looked_s, now_s))}
        key = signed_comment.read_key(Path(config.paths.key))
        new = (job for job_id, job in ended.items() if job_id not in self._seen)
        notes = {job.job_id: note for job in new if (note := peak_note(job, key)) is not None}
        ids = list(notes)
        for first in range(0, len(ids), AT_ONCE):
            for job_id, comment in self._accounts.comments(ids[first : first + AT_ONCE]).items():
                self._seen.add(job_id)  # first: an error in one must not block the others
                self._remember(ended[job_id], comment, notes[job_id], config, key)
        self._seen = {job_id for job_id in ended if job_id in self._seen or job_id in notes}
        self._looked_s = now_s

    def _remember(self, job: EndedJob, comment: str, note: Note, config: Config, key: bytes) -> None:
        booking = signed_comment.read_signed_booking(comment, user_id=job.user_id, key=key)
        now_s = self._clock.now_s()
        run = run_from_note(note, booking, config, user_id=job.user_id, job_id=job.job_id, now_s=now_s)
        if run is not None and not self._peaks.knows(job.job_id):
            self._peaks.record(run)

    def _work(self) -> bool:
        if self._stopping.wait(EVERY_S):
            return False
        try:
            self.learn()
            self._complaint.set("")
        except RadError as exc:
            self._complaint.set(str(exc))
        return True


def look_back_s(looked_s: float | None, now_s: float) -> int:
    """Return how far back to look for ended jobs, in seconds.

    Args:
        looked_s: When accounts were last read, on the monotonic clock; None if never.
        now_s: The time, on the same clock.

    >>> look_back_s(None, 0.0), look_back_s(0.0, 30.0), look_back_s(0.0, 660.0)
    (3600, 300, 900)
    """
    if looked_s is None:
        return FIRST_S
    away_s = max(0, int(now_s - looked_s - 2 * EVERY_S))
    return min(AGAIN_S + away_s, MOST_S)


def peak_note(job: EndedJob, key: bytes) -> Note | None:
    """Return what an Epilog signed about the peak of a job that has ended; None if there is none.

    Args:
        job: The job.
        key: The cluster's key.
    """
    note = read_signed(job.admin_comment, job_id=job.job_id, user_id=job.user_id, key=key)
    return note if note is not None and note.event == "ended" and note.peak_bytes else None
