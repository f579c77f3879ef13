"""Ask a child process, and do without its answer where it takes too long.

A call that hangs in the kernel (a dead NFS server, a driver) can be interrupted by nothing, and a process with a
thread in it cannot even end. So it is made in a child: in a session of its own, with none of our files, so that nothing
waits for it. A child that does not even die is left to init.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import NoReturn

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.errors import RadError

POLITE_S = 0.2
"""A child ends itself this long after its time, even if nobody is left to kill it."""

_POLL_S = 0.1
_HEAD_BYTES = 8
_READ_AT_ONCE = 1 << 16


class ChildError(RadError):
    """The child ended without an answer, or did not answer in time."""


def in_child(task: Callable[[], bytes], *, timeout_s: float) -> bytes:
    """Return what `task` returns in a child process.

    Args:
        task: What to ask; an exception of it ends the child without an answer.
        timeout_s: When to give up.

    Raises:
        ChildError: There is no answer; the text says why.
    """
    clock = SystemClock()
    end_s = clock.monotonic_s() + timeout_s
    try:
        reader, writer = os.pipe()
    except OSError as exc:
        raise ChildError(f"no process could be started: {exc.strerror}") from exc
    try:
        child = os.fork()
    except OSError as exc:
        os.close(reader)
        os.close(writer)
        raise ChildError(f"no process could be started: {exc.strerror}") from exc
    if child == 0:
        _answer(task, writer, timeout_s)
    os.close(writer)
    try:
        return _receive(reader, child, end_s)
    finally:
        os.close(reader)
        if not _ended(child):
            os.kill(child, signal.SIGKILL)
            _ended(child)


def _receive(reader: int, child: int, end_s: float) -> bytes:
    """Return the answer; its length comes first, because a grandchild may hold the pipe open."""
    clock, content, gone = SystemClock(), b"", False
    while True:
        length = int.from_bytes(content[:_HEAD_BYTES]) if len(content) >= _HEAD_BYTES else None
        if length is not None and len(content) >= _HEAD_BYTES + length:
            return content[_HEAD_BYTES : _HEAD_BYTES + length]
        left_s = end_s - clock.monotonic_s()
        if left_s <= 0:
            raise ChildError("out of time")
        ready, _, _ = select.select([reader], [], [], 0 if gone else min(left_s, _POLL_S))
        part = os.read(reader, _READ_AT_ONCE) if ready else b""
        content += part
        if not part and (ready or gone):
            raise ChildError("its process ended early")
        gone = gone or (not ready and _ended(child))


def _ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True


def _answer(task: Callable[[], bytes], writer: int, timeout_s: float) -> NoReturn:
    """In the child: do it, answer, end without the parent's cleaning up."""
    try:
        os.setsid()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, timeout_s + POLITE_S)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        content = task()
        content = len(content).to_bytes(_HEAD_BYTES) + content
        while content:
            content = content[os.write(writer, content) :]
    finally:
        os._exit(0)
