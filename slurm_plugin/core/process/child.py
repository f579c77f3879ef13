"""Run a task in a child process, and continue without its answer if it takes too long.

Nothing can interrupt a call that hangs in the kernel (a dead NFS server, a driver), and a process with a thread in such
a call cannot even end. So the call is made in a child: in a separate session, with none of the parent's files, so that
nothing waits for it. A child that cannot be killed is left to init.

The cost of a fork grows with the size of the process, so a hook forks before it loads its modules, and this module
loads next to nothing.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from slurm_plugin.core.errors import RadError

POLITE_S = 0.2
"""A child ends itself this long after its time, even if no parent is left to kill it."""

_HEAD_BYTES = 8
_READ_AT_ONCE = 1 << 16

_unreaped: set[int] = set()
"""Children that gave their answer and end by themselves; their parent reaps them when it starts the next one."""


class ChildError(RadError):
    """The child ended without an answer, or did not answer in time."""


def monotonic_s() -> float:
    """Return SystemClock's seconds, without the modules that core/clock.py loads."""
    return time.monotonic()  # noqa: TID251


def in_child(task: Callable[[], bytes], *, timeout_s: float) -> bytes:
    """Return what `task` returns in a child process.

    Args:
        task: What to run; an exception in it ends the child without an answer.
        timeout_s: When to give up.

    Raises:
        ChildError: There is no answer; the text says why.
    """
    return Child(task, timeout_s=timeout_s).answer()


class Child:
    """A task that a child runs while its parent continues."""

    def __init__(self, task: Callable[[], bytes], *, timeout_s: float) -> None:
        """Start the child.

        Args:
            task: What to run; an exception in it ends the child without an answer.
            timeout_s: When to give up, from now on.

        Raises:
            ChildError: No process could be started.
        """
        _unreaped.difference_update([pid for pid in tuple(_unreaped) if _ended(pid)])
        self._end_s = monotonic_s() + timeout_s
        try:
            reader, writer = os.pipe()
        except OSError as exc:
            raise ChildError(f"no process could be started: {exc.strerror}") from exc
        try:
            self._pid = os.fork()
        except OSError as exc:
            os.close(reader)
            os.close(writer)
            raise ChildError(f"no process could be started: {exc.strerror}") from exc
        if self._pid == 0:
            _answer(task, writer, timeout_s)
        os.close(writer)
        self._reader = reader

    def answer(self) -> bytes:
        """Wait for the answer and return it; only once.

        Raises:
            ChildError: There is none; the text says why.
        """
        try:
            content = self._receive()
        except BaseException:
            os.kill(self._pid, 9)  # not yet reaped, so the pid is not reused
            raise
        finally:
            os.close(self._reader)
            if not _ended(self._pid):
                _unreaped.add(self._pid)
        return content

    def _receive(self) -> bytes:
        """Return the answer; its length comes first, because a grandchild may hold the pipe open."""
        with _exit_of(self._pid) as exited:
            waits = select.poll()
            for handle in (self._reader, *exited):
                waits.register(handle, select.POLLIN)
            content, gone = b"", False
            while True:
                # An answer that has begun is read to its end: a pipe holds 64 KiB (pipe(7)); its reader may be late.
                end_s = self._end_s + (POLITE_S if content else 0.0)
                left_s = 0.0 if gone else max(0.0, end_s - monotonic_s())
                ready = [handle for handle, _ in waits.poll(1000 * left_s)]
                if not ready and not gone:
                    raise ChildError("out of time")
                if self._reader in ready and (part := os.read(self._reader, _READ_AT_ONCE)):
                    content += part
                    end = _HEAD_BYTES + int.from_bytes(content[:_HEAD_BYTES], "big")
                    if len(content) >= end:
                        return content[_HEAD_BYTES:end]
                elif self._reader in ready or gone:
                    raise ChildError("its process ended early")
                else:
                    gone = True  # its last output may have arrived meanwhile: read once more
                    waits.unregister(*exited)


@contextmanager
def _exit_of(child: int) -> Iterator[tuple[int, ...]]:
    """Give a handle that is ready once a child has ended (pidfd_open(2)); none where the kernel lacks it."""
    try:
        handle = os.pidfd_open(child)
    except OSError:
        yield ()
        return
    try:
        yield (handle,)
    finally:
        os.close(handle)


def _ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True


def _keep_priority() -> None:
    """Give a new session the priority that its process has.

    Where the kernel groups processes by session (sched(7), autogroup), niceness counts only within a session.
    """
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    if niceness >= 0:
        return
    with suppress(OSError):  # a kernel without it, or a file system that is not writable here
        group = os.open("/proc/self/autogroup", os.O_WRONLY)
        try:
            os.write(group, str(niceness).encode())
        finally:
            os.close(group)


def _answer(task: Callable[[], bytes], writer: int, timeout_s: float) -> None:
    """In the child: run the task, answer, end without the parent's cleanup."""
    try:
        import signal

        os.setsid()
        _keep_priority()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, timeout_s + POLITE_S)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        content = task()
        content = len(content).to_bytes(_HEAD_BYTES, "big") + content
        while content:
            content = content[os.write(writer, content) :]
    finally:
        os._exit(0)
