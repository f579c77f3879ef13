"""Limits of a script that outlive rad-estimate, which may be killed while the script runs."""

from __future__ import annotations

import math
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpumemnet.tracing.script.files import MAX_FILE_BYTES
from gpumemnet.tracing.script.processes import end_with_parent

CPU_SHARE = 2.0
"""CPU time per process as a multiple of the wall time limit; it ends processes after their starter was killed."""
_ENDS = (signal.SIGTERM, signal.SIGHUP)


def bound(seconds: float, parent: int) -> None:
    """Limit this process and its descendants; it ends with its parent. Runs as Popen's preexec_fn.

    Args:
        seconds: Limit of wall time.
        parent: The process id of its parent.
    """
    end_with_parent(parent)
    os.nice(10)
    most_s = math.ceil(seconds * CPU_SHARE)
    resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Make SIGTERM and SIGHUP exit through cleanup code instead of at once; if ignored, they stay ignored."""

    def leave(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {one: signal.getsignal(one) for one in _ENDS if signal.getsignal(one) is signal.SIG_DFL}
    for one in before:
        signal.signal(one, leave)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
