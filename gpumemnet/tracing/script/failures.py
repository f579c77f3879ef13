"""Why a script ended before its steps were made, in one line: an exception, caught or not."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from gpumemnet.tracing.script.files import STARTED_IN

_OF_VALUES = ("AssertionError", "IndexError", "KeyError", "RuntimeError", "ValueError", "ZeroDivisionError")
OF_RANKS = ("ChildFailedError", "ProcessExitedException", "CalledProcessError")
"""What torchrun, torch.multiprocessing.spawn and accelerate say where a rank has ended."""
AFTER_READING = "; it had read values from the GPU, which are zeros in a trace"
OWN = "your script ended before it used the GPU: "
_TRACEBACK = "Traceback (most recent call last)"
_START = os.path.join(os.environ.get(STARTED_IN, ""), "")
_FRAME = re.compile(r'^ *File "([^"]+)", line (\d+)', re.MULTILINE)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[.\d]*/|/gpumemnet/tracing/")
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


def place_of(error: BaseException) -> tuple[str, int]:
    """Return the file and line of the user's that an exception came from; ("", 0) if none is known.

    Args:
        error: As it was raised.
    """
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return _last_of_user(frames)


def from_process(words: str) -> tuple[str, tuple[str, int]]:
    """Return what another process was ended by, and where, of an exception that holds its traceback as text.

    Args:
        words: `torch.multiprocessing.spawn` makes them.

    Returns:
        The traceback's last line and place; ("", ("", 0)) where there is none.
    """
    if _TRACEBACK not in words:
        return "", ("", 0)
    lines = [line for line in words[words.rindex(_TRACEBACK) :].splitlines() if line.strip()]
    frames = [(file, int(number)) for file, number in _FRAME.findall("\n".join(lines))]
    said = next((line for line in reversed(lines) if line[:1].strip()), "")
    return said.strip(), _last_of_user(frames)


def at(place: tuple[str, int]) -> str:
    """Return a place in words, behind a comma; "" if it is unknown.

    Args:
        place: File and line.
    """
    file, number = place
    return f", at {file.removeprefix(_START)}:{number}" if file else ""


def _last_of_user(frames: Iterable[tuple[str, int]]) -> tuple[str, int]:
    found = ("", 0)
    for file, number in frames:
        if not file.startswith("<") and not _LIBRARY.search(file):
            found = (file, number)
    return found


def of_trace(kind: str, words: str) -> str:
    """Return in one line what a trace cannot do, where an exception comes from that; "" if it is the script's own.

    Args:
        kind: Class of the exception.
        words: What it says.
    """
    if kind in ("DynamicOutputShapeException", "DataDependentOutputException"):
        return f"what {words.removeprefix('aten.').split('.')[0]} gives depends on values, and a trace computes none"
    if "CUDA driver version is insufficient" in words or "Found no NVIDIA driver" in words:
        return "it calls the CUDA driver itself (a CUDA graph, a kernel of its own), and here is none"
    if "_share_fd_: only available on CPU" in words or "_share_filename_: only available on CPU" in words:
        return "it shares tensors of the GPU with processes of its own, and a trace runs one: try it with one process"
    if END_OF_INPUT in words:
        return ASKED
    return words if kind == "TraceError" else ""


def why(kind: str, words: str, *, read: bool = False, place: tuple[str, int] = ("", 0)) -> str:
    """Return in one line why a script's exception ended its trace.

    Args:
        kind: Class of the exception.
        words: What it says.
        read: Whether the script had read values of the GPU.
        place: File and line that it came from, if known.
    """
    if limit := of_trace(kind, words):
        return limit
    after = AFTER_READING if read and kind in _OF_VALUES else ""
    said, of_process = from_process(words)
    if said:
        return f"a process that it started ended with {said[:300]}{at(of_process)}{after}"
    said = " ".join((words or linecache.getline(*place)).split())
    return f"{kind}: {said[:300]}{at(place)}{after}"
