"""What holds a script if nobody is left to end it: rad-estimate may be killed while the script runs."""

from __future__ import annotations

import math
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpumemnet.tracing.script.processes import end_with_parent
from gpumemnet.units import MIB

MAX_FILE_BYTES = 256 * MIB
"""What one file may grow to: a script that writes more has gone further than we meant."""
CPU_SHARE = 2.0
"""Processor time of each process over the wall time that all have: an end for those whose starter was killed."""
_ENDS = (signal.SIGTERM, signal.SIGHUP)


def bound(seconds: float, parent: int) -> None:
    """Bound this process and all that it starts; it ends with its parent. Runs as Popen's preexec_fn.

    Args:
        seconds: The wall time that it has.
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
    """Have SIGTERM and SIGHUP, which end a program at once, leave by way of what cleans up; those ignored stay so."""

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
