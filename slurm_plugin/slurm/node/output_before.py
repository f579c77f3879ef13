"""State of a job's output files before a run, so that output of an earlier run is not attributed to this one.

    RUN/outputs/ID      owned by root, 0600: what the Prolog saw, for the Epilog

Slurm does not report to a Prolog whether a file will be appended to or truncated, so the Epilog finds that out. A file
that is longer by now, and has the same bytes at its former end, was appended to: only what follows counts. One that was
truncated or replaced counts from its start, and so does one of the same length that was written to: a script that fails
twice in the same way prints the same twice. If unclear, all of it counts: a job that ran out of memory must be rerun.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from slurm_plugin.core.process.child import ChildError, in_child
from slurm_plugin.core.units import KIB
from slurm_plugin.slurm.node.owner import Identity, become

WINDOW_BYTES = 4 * KIB
"""How much of a file's end is compared."""

MOST_FILES = 8
"""A job of many tasks may write many files; an OOM message is in most of them."""

LOOK_S = 1.0
"""Part of a hook's time; a file system that does not answer by then is ignored."""

OPENED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Flags for files at paths that a user chose: no links, and no waiting for a FIFO."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """A file before a run.

    Attributes:
        device: Its file system.
        inode: Its number there.
        size_bytes: How long it was.
        mtime_ns: When it was last written to.
        crc: Checksum of its last WINDOW_BYTES.
    """

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    crc: int


def look(paths: Iterable[str], owner: Identity) -> tuple[Before, ...]:
    """Return the present state of files, read by a child process as the job's user; unreadable ones are left out.

    Args:
        paths: Paths of output files, as Slurm will write them.
        owner: The identity that the child process takes.
    """

    def task() -> bytes:
        become(owner)
        found = [seen for path in list(paths)[:MOST_FILES] if (seen := _look_at(path)) is not None]
        return json.dumps([asdict(seen) for seen in found]).encode()

    try:
        rows = json.loads(in_child(task, timeout_s=LOOK_S))
    except ChildError:
        return ()
    return tuple(Before(**row) for row in rows)


def _look_at(path: str) -> Before | None:
    try:
        handle = os.open(path, OPENED)
    except (OSError, ValueError):
        return None
    try:
        now = os.fstat(handle)
        if not stat.S_ISREG(now.st_mode) or not now.st_size:
            return None  # an empty file says nothing about this run
        return Before(
            device=now.st_dev,
            inode=now.st_ino,
            size_bytes=now.st_size,
            mtime_ns=now.st_mtime_ns,
            crc=_crc(handle, now.st_size),
        )
    except OSError:
        return None
    finally:
        os.close(handle)


def run_begins_at(handle: int, befores: Sequence[Before]) -> int:
    """Return the offset in an open file at which this run's text begins.

    Args:
        handle: Descriptor of the open file.
        befores: States of the job's files seen by the Prolog.

    Raises:
        OSError: It cannot be read.
    """
    now = os.fstat(handle)
    for before in befores:
        if (before.device, before.inode) != (now.st_dev, now.st_ino):
            continue
        if now.st_size < before.size_bytes or _crc(handle, before.size_bytes) != before.crc:
            return 0
        written_again = now.st_size == before.size_bytes and now.st_mtime_ns != before.mtime_ns
        return 0 if written_again else before.size_bytes
    return 0


def _crc(handle: int, end: int) -> int:
    start = max(0, end - WINDOW_BYTES)
    return zlib.crc32(os.pread(handle, end - start, start))


def keep(run: Path, job_id: int, befores: Sequence[Before]) -> None:
    """Store for a job's Epilog what its Prolog saw; no file is written if it saw nothing.

    Args:
        run: Folder of the node's state (`paths.run`).
        job_id: The job.
        befores: Result of `look`.

    Raises:
        OSError: It cannot be written; no file is left, and all of the output counts.
    """
    forget(run, job_id)
    if not befores:
        return
    path = _path(run, job_id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        json.dump([asdict(before) for before in befores], file)


def recall(run: Path, job_id: int) -> tuple[Before, ...]:
    """Return what the Prolog of a job saw; nothing if it left no file, or an incomplete one.

    Args:
        run: Folder of the node's state (`paths.run`).
        job_id: The job.
    """
    try:
        rows = json.loads(_path(run, job_id).read_bytes())
        return tuple(Before(**{name: int(value) for name, value in row.items()}) for row in rows)
    except (OSError, ValueError, TypeError, AttributeError):
        return ()


def forget(run: Path, job_id: int) -> None:
    """Remove what a Prolog left.

    Args:
        run: Folder of the node's state (`paths.run`).
        job_id: The job.
    """
    with suppress(OSError):
        _path(run, job_id).unlink(missing_ok=True)


def _path(run: Path, job_id: int) -> Path:
    return run / "outputs" / str(job_id)
