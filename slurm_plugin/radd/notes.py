"""Take in the notes that hooks write into AdminComments: requeued jobs, and peaks of jobs that have ended."""

from __future__ import annotations

import logging
from typing import NamedTuple

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.comments.admin_comment import Note, format_note, read_note, read_signed
from slurm_plugin.core.comments.signed_comment import verified_booking
from slurm_plugin.core.logs.daemon_log import about
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.radd.history.peaks import run_from_note
from slurm_plugin.radd.protocol.messages import Modified
from slurm_plugin.radd.requeued.release import Releaser
from slurm_plugin.radd.submission.reload import Reloader

log = logging.getLogger("radd")


class Signed(NamedTuple):
    """What a hook signed about a job.

    Attributes:
        note: The note.
        booking: The job's verified booking; None if it has none.
    """

    note: Note
    booking: Booking | None


def signed_in(change: Modified, key: bytes) -> Signed | None:
    """Return what a hook signed about a job; None if the note has no effect: anyone could have written it.

    Args:
        change: The changed job.
        key: The cluster's key.
    """
    note = read_signed(change.admin_comment, job_id=change.job_id, user_id=change.user_id, key=key)
    if note is None:
        return None
    return Signed(note, verified_booking(change.comment, user_id=change.user_id, key=key))


class NoteReader:
    """Passes each signed note on to the parts of radd that it concerns."""

    def __init__(self, in_force: Reloader, releaser: Releaser, clock: Clock) -> None:
        """Connect the parts.

        Args:
            in_force: Settings, key and records of runs.
            releaser: Starts requeued jobs.
            clock: Time.
        """
        self._in_force, self._releaser, self._clock = in_force, releaser, clock

    def take(self, change: Modified) -> None:
        """Take in one note."""
        if (shown := read_note(change.admin_comment)) is not None:
            what = about(EventKind.RECEIVED, job_id=change.job_id, user_id=change.user_id)
            log.info("job %d: %s", change.job_id, format_note(shown), extra=what)
        signed = signed_in(change, self._in_force.key)
        if signed is None:
            return
        features = self._in_force.config.features
        if features.recovery:
            profile_key = None if signed.booking is None else signed.booking.profile_key
            self._releaser.hear(change.job_id, signed.note, profile_key=profile_key)
        if features.history:
            self._remember(change, signed)

    def _remember(self, change: Modified, signed: Signed) -> None:
        run = run_from_note(
            signed.note,
            signed.booking,
            self._in_force.config,
            user_id=change.user_id,
            job_id=change.job_id,
            now_s=self._clock.now_s(),
        )
        if run is not None:
            self._in_force.peaks.record(run)
            self._in_force.peaks.refresh()
