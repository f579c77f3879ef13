"""Children that end when their parent does, however that ends: a run cut off leaves nothing on the GPUs."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before a fork: between fork and exec nothing may be


def with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return what a child does first, so that it gets this signal when its parent has died (prctl(2)).

    Works as Popen's preexec_fn, which runs after the change of user: that would undo it.
    """

    def set_up() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, number)

    return set_up
