"""Checkpoints that a script saves before a trace has seen enough: none is written, and none that is there is lost.

Data sets are written: what they make of their files at first they save, and load again at once, here and in the job.

Where a script saves to memory, nobody knows to which file it will write what was to be there. So from then on the trace
ends before a file that holds something is written anew.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import ExitStack
from typing import Any
from weakref import WeakSet

import torch

from gpumemnet.errors import TraceError
from gpumemnet.script.loaders import tensors_in
from gpumemnet.trace.device import replaced
from gpumemnet.trace.tensors import local, on_cuda

TOO_SOON = "it saves before its second optimizer step is done: let it save later, or train for longer"


class Saves:
    """Files that a script opened for its checkpoints: empty ones, which must not take the place of another.

    Attributes:
        missing: A checkpoint was not written.
    """

    def __init__(self) -> None:
        self.missing = False
        self._empty: set[str] = set()
        self._memory: WeakSet[io.BytesIO] = WeakSet()
        self._watches = False

    def pretended(self, stack: ExitStack) -> None:
        """Have no empty file renamed, and nothing loaded from memory where nothing was saved.

        Args:
            stack: Holds it.
        """
        for name in ("replace", "rename"):
            stack.enter_context(replaced(os, name, self._guarded(getattr(os, name))))
        load = torch.load

        def loaded(f: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, io.BytesIO) and f in self._memory:
                raise TraceError(TOO_SOON)
            return load(f, *args, **kwargs)

        stack.enter_context(replaced(torch, "load", loaded))

    def into(self, where: Any) -> None:
        """Note where a script saves.

        Args:
            where: A path, where nothing is written; a file, which the script has emptied as it opened it; or memory.

        Raises:
            TraceError: It is something else, of which nobody knows where it goes.
        """
        self.missing = True
        if isinstance(where, (str, os.PathLike)):
            return
        if isinstance(where, io.BytesIO):
            self._memory.add(where)
            if not self._watches:
                sys.addaudithook(self._opened)
            self._watches = True
            return
        try:
            where.fileno()
            self._empty.add(os.path.realpath(where.name))
        except (AttributeError, TypeError, OSError, ValueError):
            raise TraceError(TOO_SOON) from None

    def _opened(self, event: str, args: Any) -> None:
        """Hear of each file that is opened; those that hold something are not to be emptied any more."""
        if event == "open" and isinstance(args[2], int) and args[2] & os.O_TRUNC and _holds(args[0]):
            raise TraceError(TOO_SOON)

    def _guarded(self, rename: Any) -> Any:
        def renamed(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            if os.path.realpath(os.fspath(source)) in self._empty or (self._watches and _holds(target)):
                raise TraceError(TOO_SOON)
            return rename(source, target, *args, **kwargs)

        return renamed


def of_data(saved: Any, where: Any) -> bool:
    """Tell whether this is what a data set keeps for later: of the CPU, and for a file that holds nothing yet.

    Args:
        saved: What is saved before the first step.
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
    """Tell whether a file is there and is not empty."""
    try:
        return not isinstance(path, int) and os.path.isfile(path) and os.path.getsize(path) > 0
    except (OSError, TypeError, ValueError):
        return False
