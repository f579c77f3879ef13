"""Handle messages outside of any request, one at a time, and look regularly at what other programs wrote."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.process.background import in_background

log = logging.getLogger("radd")

REFRESH_S = 5.0
"""How often `refresh` is called, also while messages keep coming."""

Message = TypeVar("Message")


class Inbox(Generic[Message]):
    """A queue with a thread."""

    def __init__(self, take: Callable[[Message], None], refresh: Callable[[], None], clock: Clock) -> None:
        """Start the thread.

        Args:
            take: Handles a message.
            refresh: Reads what was written since its last call.
            clock: Time.
        """
        self._take, self._refresh, self._clock = take, refresh, clock
        self._messages: SimpleQueue[Message | None] = SimpleQueue()
        self._refreshed_s = clock.monotonic_s()
        self._thread = in_background("radd-inbox", self._work, log=log)

    def put(self, message: Message) -> None:
        """Have a message handled later; the caller does not wait."""
        self._messages.put(message)

    def stop(self) -> None:
        """Handle what has come, and end."""
        self._messages.put(None)
        self._thread.join(timeout=2)

    def _work(self) -> bool:
        """Handle one message, or refresh if none comes; return whether there may be another."""
        try:
            message = self._messages.get(timeout=REFRESH_S)
        except Empty:
            self._refresh_now()
            return True
        if message is None:
            return False
        self._take(message)
        if self._clock.monotonic_s() - self._refreshed_s >= REFRESH_S:
            self._refresh_now()
        return True

    def _refresh_now(self) -> None:
        self._refreshed_s = self._clock.monotonic_s()
        self._refresh()
