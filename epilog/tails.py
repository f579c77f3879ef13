"""Read the end of a job's output files with the identity of the job's owner, never with root's.

A user chooses these paths. A child process takes the owner's identity for good, opens nothing but regular files, and
waits neither for a FIFO nor for the other end of a link; a file system that hangs costs the child its life, not the
Epilog its time.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.units import KIB

TAIL_BYTES = 256 * KIB
MOST_FILES = 8
"""A job of many tasks may write many files; the words of an OOM stand in most of them."""

_CHUNK_BYTES = 64 * KIB
_FRAME_END = b"\0RAD\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whom a child process becomes.

    Attributes:
        user_id: The user.
        group_id: The user's group for the job.
        user_name: For the other groups of the user; "" if unknown.
    """

    user_id: int
    group_id: int
    user_name: str = ""


def read_tails(paths: Sequence[str], *, owner: Identity, deadline: Deadline) -> tuple[str, ...]:
    """Return the last TAIL_BYTES of each output file that can be read.

    Args:
        paths: The files, as the job's owner named them.
        owner: The job's owner.
        deadline: What is not read by then is left out.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _child(reader, writer, paths, owner)
    os.close(writer)
    try:
        content = _drain(reader, deadline)
    finally:
        os.close(reader)
        _end(child)
    return tuple(part.decode(errors="replace") for part in content.split(_FRAME_END)[:-1])


def _child(reader: int, writer: int, paths: Sequence[str], owner: Identity) -> None:
    """Become the owner, read, write and end; never returns."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.close(reader)
        _become(owner)
        for path in paths[:MOST_FILES]:
            tail = _tail(path)
            if tail is not None:
                _write_all(writer, tail.replace(_FRAME_END, b"") + _FRAME_END)
        status = 0
    finally:
        os._exit(status)


def _become(owner: Identity) -> None:
    if os.geteuid() != 0:
        if os.geteuid() != owner.user_id:
            raise PermissionError("only root can read as another user")
        return
    groups = [owner.group_id]
    if owner.user_name:
        with contextlib.suppress(KeyError):
            groups = os.getgrouplist(owner.user_name, owner.group_id)
    os.setgroups(groups)
    os.setresgid(owner.group_id, owner.group_id, owner.group_id)
    os.setresuid(owner.user_id, owner.user_id, owner.user_id)


def _tail(path: str) -> bytes | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        os.lseek(handle, max(0, status.st_size - TAIL_BYTES), os.SEEK_SET)
        found = b""
        while len(found) < TAIL_BYTES and (part := os.read(handle, TAIL_BYTES - len(found))):
            found += part
        return found
    except OSError:
        return None
    finally:
        os.close(handle)


def _write_all(handle: int, content: bytes) -> None:
    while content:
        content = content[os.write(handle, content) :]


def _drain(reader: int, deadline: Deadline) -> bytes:
    content = bytearray()
    while len(content) < MOST_FILES * 2 * TAIL_BYTES:
        ready, _, _ = select.select([reader], [], [], deadline.remaining_s())
        if not ready:
            break
        part = os.read(reader, _CHUNK_BYTES)
        if not part:
            break
        content += part
    return bytes(content)


def _end(child: int) -> None:
    """End the child; one that hangs in the kernel is left to init."""
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, os.WNOHANG)
    except (ProcessLookupError, ChildProcessError):
        return
