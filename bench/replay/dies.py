"""Start child processes that end with their parent: a run cut off leaves nothing on the GPUs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

from gpumemnet.tracing.script.processes import end_with_parent


def with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return what a child does first, as Popen's preexec_fn, so that it gets this signal when its parent has died."""
    return partial(end_with_parent, os.getpid(), number)
