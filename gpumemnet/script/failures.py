"""Why a script ended before its steps were made, in one line: an exception, caught or not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_OF_VALUES = ("AssertionError", "IndexError", "KeyError", "RuntimeError", "ValueError", "ZeroDivisionError")
OF_RANKS = ("ChildFailedError", "ProcessExitedException", "CalledProcessError")
"""What torchrun, torch.multiprocessing.spawn and accelerate say where a rank has ended."""
AFTER_READING = "; it had read values from the GPU, which are zeros in a trace"
END_OF_INPUT = "EOF when reading a line"
ASKED = "it asks for something to be typed, and a trace has nobody to ask: give it what it asks for as an argument"


class Failures:
    """Hears of what ends a script.

    Not of all: a library may put a hook of its own in the place of ours (Typer, Rich), or catch everything, print it
    and leave by `sys.exit` (Hydra). So `last` is asked once the script ends.
    """

    def __init__(self) -> None:
        self._handled: BaseException | None = None

    def watch(self, failed: Callable[[BaseException], None]) -> None:
        """Hear of exceptions that nobody catches, and of those that are caught to leave by.

        Args:
            failed: Is called with what nobody caught.
        """
        hook, leave = sys.excepthook, sys.exit

        def uncaught(kind: Any, error: BaseException, trace: Any) -> None:
            hook(kind, error, trace)
            failed(error)

        def leaving(status: Any = None) -> None:
            self._handled = sys.exc_info()[1] if status else None
            leave(status)

        sys.excepthook = uncaught
        sys.exit = leaving  # type: ignore[assignment]

    def last(self) -> BaseException | None:
        """Return the exception that the script ends by; None if it just ends."""
        error = getattr(sys, "last_value", None) or self._handled
        return None if isinstance(error, (SystemExit, KeyboardInterrupt)) else error


def first_of(error: BaseException) -> BaseException:
    """Return the exception that one was raised from, at the beginning of the chain: libraries say less than it does.

    Args:
        error: What ended a script.
    """
    met = {id(error)}  # `raise error from error` is its own cause
    while (cause := error.__cause__) is not None and id(cause) not in met:
        met.add(id(cause))
        error = cause
    return error


def why(kind: str, words: str, *, read: bool = False) -> str:
    """Return in one line why a script's exception ended its trace.

    Args:
        kind: Class of the exception.
        words: What it says.
        read: Whether the script had read values of the GPU.
    """
    if kind in ("DynamicOutputShapeException", "DataDependentOutputException"):
        return f"what {words.removeprefix('aten.').split('.')[0]} gives depends on values, and a trace computes none"
    if "CUDA driver version is insufficient" in words or "Found no NVIDIA driver" in words:
        return "it calls the CUDA driver itself (a CUDA graph, a kernel of its own), and here is none"
    if "_share_fd_: only available on CPU" in words or "_share_filename_: only available on CPU" in words:
        return "it shares tensors of the GPU with processes of its own, and a trace runs one: try it with one process"
    if END_OF_INPUT in words:
        return ASKED
    if kind == "TraceError":
        return words
    after = AFTER_READING if read and kind in _OF_VALUES else ""
    return f"{kind}: {' '.join(words.split())[:300]}{after}"
