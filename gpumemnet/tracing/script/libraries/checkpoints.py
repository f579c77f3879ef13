"""Skip checkpoints that a script saves before the trace is complete: there are no values to write.

Data sets are written: they often save preprocessed files first and load them again at once, here and in the job.
Existing files are protected from all of it (`shields.py`).
"""

from __future__ import annotations

import io
import os
from contextlib import ExitStack
from typing import Any
from weakref import WeakSet

import torch

from gpumemnet.errors import TraceError
from gpumemnet.tracing.script.loaders import tensors_in
from gpumemnet.tracing.trace.device import replaced
from gpumemnet.tracing.trace.tensors import local, on_cuda

TOO_SOON = "it reads a checkpoint again that it saved before its second optimizer step: let it save later"


class Saves:
    """Skipped checkpoints.

    Attributes:
        missing: Whether one was skipped.
    """

    def __init__(self) -> None:
        self.missing = False
        self._memory: WeakSet[io.BytesIO] = WeakSet()

    def pretended(self, stack: ExitStack) -> None:
        """Return nothing when the script loads from memory where nothing was saved.

        Args:
            stack: Receives the contexts.
        """
        load = torch.load

        def loaded(f: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, io.BytesIO) and f in self._memory:
                raise TraceError(TOO_SOON)
            return load(f, *args, **kwargs)

        stack.enter_context(replaced(torch, "load", loaded))

    def into(self, where: Any) -> None:
        """Record where a script saves.

        Args:
            where: A path, a file or memory.
        """
        self.missing = True
        if isinstance(where, io.BytesIO):
            self._memory.add(where)


def of_data(saved: Any, where: Any) -> bool:
    """Return whether this is a data set's cache: on the CPU, for a file that is still empty.

    Args:
        saved: Object saved before the first step.
        where: A path, an open file, or memory.
    """
    fresh = isinstance(where, io.BytesIO) or (isinstance(where, (str, os.PathLike)) and not _holds(where))
    return (fresh or _is_file(where)) and not any(on_cuda(local(each)) for each in tensors_in(saved))


def _is_file(where: Any) -> bool:
    try:
        return isinstance(where.fileno(), int)
    except (AttributeError, OSError, ValueError):
        return False


def _holds(path: Any) -> bool:
    """Return whether a file exists and is not empty."""
    try:
        return not isinstance(path, int) and os.path.isfile(path) and os.path.getsize(path) > 0
    except (OSError, TypeError, ValueError):
        return False
