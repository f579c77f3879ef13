"""Read the end of a job's output files with the identity of the job's owner, never with root's.

A user chooses these paths. A child process takes the owner's identity for good, opens nothing but regular files, and
waits neither for a FIFO nor for the other end of a link; a file system that hangs costs the child its life, not the
Epilog its time.
"""

from __future__ import annotations

import os
import select
import signal
import stat
from collections.abc import Sequence

from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.units import KIB
from slurm_plugin.slurm.output_before import MOST_FILES, OPENED, Before, run_begins_at
from slurm_plugin.slurm.owner import Identity, become

TAIL_BYTES = 256 * KIB

_CHUNK_BYTES = 64 * KIB
_FRAME_END = b"\0RAD\0"


def read_tails(
    paths: Sequence[str], *, owner: Identity, deadline: Deadline, befores: Sequence[Before] = ()
) -> tuple[str, ...]:
    """Return the last TAIL_BYTES of each output file that can be read, without what was there before the run.

    Args:
        paths: The files, as the job's owner named them.
        owner: The job's owner.
        befores: How files stood before the run.
        deadline: What is not read by then is left out.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _child(reader, writer, paths, owner, befores)
    os.close(writer)
    try:
        content = _drain(reader, deadline)
    finally:
        os.close(reader)
        _end(child)
    return tuple(part.decode(errors="replace") for part in content.split(_FRAME_END)[:-1])


def _child(
    reader: int, writer: int, paths: Sequence[str], owner: Identity, befores: Sequence[Before]
) -> None:
    """Become the owner, read, write and end; never returns."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.close(reader)
        become(owner)
        for path in paths[:MOST_FILES]:
            tail = _tail(path, befores)
            if tail is not None:
                _write_all(writer, tail.replace(_FRAME_END, b"") + _FRAME_END)
        status = 0
    finally:
        os._exit(status)


def _tail(path: str, befores: Sequence[Before]) -> bytes | None:
    try:
        handle = os.open(path, OPENED)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        start = max(run_begins_at(handle, befores), status.st_size - TAIL_BYTES)
        os.lseek(handle, start, os.SEEK_SET)
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
