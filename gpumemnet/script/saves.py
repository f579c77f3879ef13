"""Checkpoints that a script saves before a trace has seen enough: none is written, and none that is there is lost."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

from gpumemnet.errors import TraceError
from gpumemnet.trace.device import replaced

TOO_SOON = "it saves before its second optimizer step is done: let it save later, or train for longer"


class Saves:
    """Files that a script opened for its checkpoints: empty ones, which must not take the place of another."""

    def __init__(self) -> None:
        self._empty: set[str] = set()

    def pretended(self, stack: ExitStack) -> None:
        """Have no empty file renamed.

        Args:
            stack: Holds it.
        """
        for name in ("replace", "rename"):
            stack.enter_context(replaced(os, name, self._guarded(getattr(os, name))))

    def into(self, where: Any) -> None:
        """Note where a script saves.

        Args:
            where: A path, where nothing is written; a file, which the script has emptied as it opened it; or memory.

        Raises:
            TraceError: It is memory, which the script will write to a file that nobody knows yet.
        """
        if isinstance(where, (str, os.PathLike)):
            return
        try:
            where.fileno()
            self._empty.add(os.path.realpath(where.name))
        except (AttributeError, TypeError, OSError, ValueError):
            raise TraceError(TOO_SOON) from None

    def _guarded(self, rename: Any) -> Any:
        def renamed(source: Any, *args: Any, **kwargs: Any) -> Any:
            if os.path.realpath(os.fspath(source)) in self._empty:
                raise TraceError(TOO_SOON)
            return rename(source, *args, **kwargs)

        return renamed
