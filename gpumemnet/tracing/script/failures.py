"""Explain in one line why a script ended before its steps: an exception, caught or not."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from gpumemnet.tracing.script.files import MAX_FILE_BYTES, STARTED_IN
from gpumemnet.units import MIB

_OF_VALUES = ("AssertionError", "IndexError", "KeyError", "RuntimeError", "ValueError", "ZeroDivisionError")
OF_RANKS = ("ChildFailedError", "ProcessExitedException", "CalledProcessError")
"""Exceptions of torchrun, torch.multiprocessing.spawn and accelerate when a rank has ended."""
AFTER_READING = "; it had read values from the GPU, which are zeros in a trace"
OWN = "your script ended before it used the GPU: "
_TRACEBACK = "Traceback (most recent call last)"
_START = os.path.join(os.environ.get(STARTED_IN, ""), "")
_FRAME = re.compile(r'^ *File "([^"]+)", line (\d+)', re.MULTILINE)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[.\d]*/|/gpumemnet/tracing/")
END_OF_INPUT = "EOF when reading a line"
READS_INPUT = "it reads typed input, which a trace cannot give: pass the input as an argument"

TOO_LARGE = (
    f"it wrote more than {MAX_FILE_BYTES // MIB} MiB into one file, the limit of a trace: write or download that file "
    "beforehand, or only after two steps"
)
_WRITTEN = re.compile(r"File too large|\b\d+ requested and \d+ written")
"""What the system, and NumPy instead of it, say of a file that reached the limit."""


class Failures:
    """Records the exceptions that end a script.

    It misses some: a library may replace the exception hook (Typer, Rich), or catch everything, print it and call
    `sys.exit` (Hydra). So `last` is read once the script ends.
    """

    def __init__(self) -> None:
        self._handled: BaseException | None = None

    def watch(self, failed: Callable[[BaseException], None]) -> None:
        """Record uncaught exceptions, and those that are caught before an exit.

        Args:
            failed: Called with uncaught exceptions.
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
        """Return the exception that ends the script; None if it ends normally."""
        error = getattr(sys, "last_value", None) or self._handled
        return None if isinstance(error, (SystemExit, KeyboardInterrupt)) else error


def first_of(error: BaseException) -> BaseException:
    """Return the first exception of a chain: libraries' later ones say less."""
    met = {id(error)}  # `raise error from error` is its own cause
    while (cause := error.__cause__) is not None and id(cause) not in met:
        met.add(id(cause))
        error = cause
    return error


def place_of(error: BaseException) -> tuple[str, int]:
    """Return the user's file and line that raised an exception; ("", 0) if unknown."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return _last_of_user(frames)


def from_process(words: str) -> tuple[str, tuple[str, int]]:
    """Return the error and place of another process, from an exception that holds its traceback as text.

    Args:
        words: Text made by `torch.multiprocessing.spawn`.

    Returns:
        Last line and place of the traceback; ("", ("", 0)) if there is none.
    """
    if _TRACEBACK not in words:
        return "", ("", 0)
    lines = [line for line in words[words.rindex(_TRACEBACK) :].splitlines() if line.strip()]
    frames = [(file, int(number)) for file, number in _FRAME.findall("\n".join(lines))]
    message = next((line for line in reversed(lines) if line[:1].strip()), "")
    return message.strip(), _last_of_user(frames)


def at(place: tuple[str, int]) -> str:
    """Return a place as text after a comma; "" if unknown."""
    file, number = place
    return f", at {file.removeprefix(_START)}:{number}" if file else ""


def _last_of_user(frames: Iterable[tuple[str, int]]) -> tuple[str, int]:
    found = ("", 0)
    for file, number in frames:
        if not file.startswith("<") and not _LIBRARY.search(file):
            found = (file, number)
    return found


def of_trace(kind: str, words: str) -> str:
    """Describe in one line the trace limitation that caused an exception; "" if the script caused it.

    Args:
        kind: Class of the exception.
        words: Its message.
    """
    if kind in ("DynamicOutputShapeException", "DataDependentOutputException"):
        return f"what {words.removeprefix('aten.').split('.')[0]} gives depends on values, and a trace computes none"
    if "CUDA driver version is insufficient" in words or "Found no NVIDIA driver" in words:
        return "it calls the CUDA driver itself (a CUDA graph, a custom kernel), which a trace does not have"
    if "_share_fd_: only available on CPU" in words or "_share_filename_: only available on CPU" in words:
        return "it shares tensors of the GPU with its own processes, and a trace runs one: try it with one process"
    if END_OF_INPUT in words:
        return READS_INPUT
    if reached_limit(words):
        return TOO_LARGE
    return words if kind == "TraceError" else ""


def reached_limit(words: str) -> bool:
    """Return whether an error's message says that a file reached the limit of a trace.

    >>> reached_limit("[Errno 27] File too large: 'a'"), reached_limit("No space left on device")
    (True, False)
    """
    return _WRITTEN.search(words) is not None


def why(kind: str, words: str, *, read: bool = False, place: tuple[str, int] = ("", 0)) -> str:
    """Explain in one line why an exception ended the trace.

    Args:
        kind: Class of the exception.
        words: Its message.
        read: Whether the script had read values from the GPU.
        place: File and line of the exception, if known.
    """
    if limit := of_trace(kind, words):
        return limit + (at(place) if limit == TOO_LARGE else "")
    after = AFTER_READING if read and kind in _OF_VALUES else ""
    message, of_process = from_process(words)
    if message:
        return f"a process that it started ended with {message[:300]}{at(of_process)}{after}"
    message = " ".join((words or linecache.getline(*place)).split())
    return f"{kind}: {message[:300]}{at(place)}{after}"
