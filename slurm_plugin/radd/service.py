"""Answer radd's messages by operation; what need not be done before the answer is handled in the background."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_plugin.core.booking.request import request_from
from slurm_plugin.core.clock import Clock
from slurm_plugin.core.comments.signed_comment import fingerprint
from slurm_plugin.core.errors import WireError
from slurm_plugin.core.history.models import models_path
from slurm_plugin.core.logs.daemon_log import about
from slurm_plugin.core.logs.events import EventKind
from slurm_plugin.radd.history.models import Models
from slurm_plugin.radd.inbox import Inbox
from slurm_plugin.radd.notes import NoteReader
from slurm_plugin.radd.protocol.messages import Modified, Submitted, modified_from
from slurm_plugin.radd.protocol.reply import VERSION, checked_version
from slurm_plugin.radd.protocol.undecided import Undecided
from slurm_plugin.radd.requeued.release import Releaser
from slurm_plugin.radd.submission.reload import Reloader
from slurm_plugin.slurm.versions import written

log = logging.getLogger("radd")


class Service:
    """radd without its socket."""

    def __init__(self, in_force: Reloader, releaser: Releaser, clock: Clock) -> None:
        """Connect the parts and start the background thread.

        Args:
            in_force: What answers submissions.
            releaser: Starts requeued jobs.
            clock: Time.
        """
        self._in_force, self._clock = in_force, clock
        self._undecided = Undecided()
        self._models = Models(models_path(Path(in_force.config.paths.state)))
        self._notes = NoteReader(in_force, releaser, clock)
        self._inbox: Inbox[Submitted | Modified] = Inbox(self._take, self._refresh, clock)

    def handle(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer one message.

        Raises:
            WireError: It is malformed.
        """
        operation = fields.get("op")
        if operation == "ping":
            return self._pong()
        checked_version(fields)
        if operation == "submit":
            self._note_undecided(fields.get("undecided"))
            return self._submit(fields)
        if operation == "change":
            return self._in_force.submission.answer_change(request_from(fields))
        if operation == "modify":
            self._inbox.put(modified_from(fields))
            return {"v": VERSION}
        raise WireError(f"unknown operation {operation!r}")

    def stop(self) -> None:
        """Finish pending work."""
        self._inbox.stop()

    def _submit(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        submission = self._in_force.submission
        job = self._in_force.standby.noted(submission.parsed(fields))
        reply = submission.answer(job)
        if submission.config.features.history and job.request.comment.profile is not None:
            self._inbox.put(job)
        return reply

    def _pong(self) -> dict[str, Any]:
        undecided = self._undecided.as_answer(now_s=self._clock.now_s())
        return {
            "v": VERSION,
            "pong": True,
            "leaves_jobs": self._in_force.submission.leave_jobs,
            "key": fingerprint(self._in_force.key),
            "settings": self._in_force.settings,
            "slurm": written(self._in_force.version),
            **undecided,
        }

    def _note_undecided(self, total: object) -> None:
        before = self._undecided
        self._undecided = before.with_count(total, now_s=self._clock.now_s())
        if self._undecided.total and self._undecided.total != before.total:
            text = "%d submissions without a decision, as reported since radd started"
            log.warning(text, self._undecided.total, extra=about(EventKind.UNDECIDED))

    def _take(self, message: Submitted | Modified) -> None:
        if isinstance(message, Submitted):
            self._models.take(message.request, now_s=self._clock.now_s())
        else:
            self._notes.take(message)

    def _refresh(self) -> None:
        self._in_force.peaks.refresh()
        self._in_force.look()
