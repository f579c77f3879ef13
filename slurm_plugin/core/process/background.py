"""Background work of a daemon: repeated rounds, in a thread that a bug in one round does not end.

Without this, a thread could die unnoticed: the daemon would continue, but without the thread's work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

AFTER_BUG_S = 5.0
"""The pause after a bug, so that a bug in every round does not flood the log and the processor."""


def in_background(
    name: str,
    once: Callable[[], bool],
    *,
    log: logging.Logger,
    pause_s: float = AFTER_BUG_S,
) -> threading.Thread:
    """Start a thread that ends with the process, or when its work says so.

    Args:
        name: The thread's.
        once: Does one round of the work, and waits for the next; returns whether there is to be another.
        log: Gets the traceback of a round that raised.
        pause_s: How long the thread waits then.
    """

    def work() -> None:
        goes_on = True
        while goes_on:
            try:
                goes_on = once()
            except Exception:
                log.exception("internal error in %s, which continues", name)
                threading.Event().wait(pause_s)

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
