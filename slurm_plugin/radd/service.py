"""Build radd from its parts, without its socket."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.history.models import models_path
from slurm_plugin.radd.dispatch import Dispatcher
from slurm_plugin.radd.history.models import Models
from slurm_plugin.radd.inbox import Inbox
from slurm_plugin.radd.notes import NoteReader
from slurm_plugin.radd.protocol.messages import Modified, Submitted
from slurm_plugin.radd.requeued.release import Releaser
from slurm_plugin.radd.submission.reload import Reloader


class Service:
    """Answers messages, and handles in the background what need not be done before the answer."""

    def __init__(self, in_force: Reloader, releaser: Releaser, clock: Clock) -> None:
        """Connect the parts and start the background thread.

        Args:
            in_force: What answers submissions.
            releaser: Starts requeued jobs.
            clock: Time.
        """
        self._in_force, self._clock = in_force, clock
        self._models = Models(models_path(Path(in_force.config.paths.state)))
        self._notes = NoteReader(in_force, releaser, clock)
        self._inbox: Inbox[Submitted | Modified] = Inbox(self._take, self._refresh, clock)
        self._dispatcher = Dispatcher(in_force, self._inbox.put, clock)

    def handle(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer one message.

        Raises:
            WireError: It is malformed.
        """
        return self._dispatcher.handle(fields)

    def stop(self) -> None:
        """Finish pending work."""
        self._inbox.stop()

    def _take(self, message: Submitted | Modified) -> None:
        if isinstance(message, Submitted):
            self._models.take(message.request, now_s=self._clock.now_s())
        else:
            self._notes.take(message)

    def _refresh(self) -> None:
        self._in_force.peaks.refresh()
        self._in_force.look()
