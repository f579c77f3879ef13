"""Files that grow by one line at a time: several processes append, and a file never exceeds its bound.

A line is written in one call to a file opened for appending, so lines of different writers never mix (write(2); on a
local file system). A file that would exceed its bound is first renamed to NAME.1, which replaces an older one.
logrotate may do the same at any time: no writer keeps such a file open.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import BinaryIO

from slurm_plugin.core.files.regular import opened
from slurm_plugin.core.units import MIB

MOST_BYTES = 16 * MIB
"""Bound of one file; with the older one, twice as much."""

PRIVATE, ADMINS = 0o600, 0o640
"""Modes: files about users' jobs are readable by root only, or by its group too."""

_OPENED = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def append_line(path: Path, line: bytes, *, mode: int = ADMINS, most_bytes: int = MOST_BYTES) -> None:
    """Append a line; its end is added here.

    Args:
        path: The file; it belongs to the owner of its folder, and its folder is created if missing.
        line: The line, without a line feed.
        mode: The file's mode; it is corrected if others may read the file.
        most_bytes: The file's bound.

    Raises:
        OSError: It cannot be written.
    """
    handle = _opened(path, mode)
    try:
        size = os.fstat(handle).st_size
        if size + len(line) >= most_bytes and _set_aside(path, handle):
            os.close(handle)
            handle = _opened(path, mode)
            size = 0
        cut_short = size > 0 and os.pread(handle, 1, size - 1) != b"\n"  # by a disk that was full
        os.write(handle, b"\n" * cut_short + line + b"\n")
    finally:
        os.close(handle)


def make_file(path: Path, mode: int) -> None:
    """Create such a file where there is none, and correct the mode of one that others may read.

    Args:
        path: The file.
        mode: Its permissions.

    Raises:
        OSError: It cannot be opened for writing.
    """
    os.close(_opened(path, mode))


def _opened(path: Path, mode: int) -> int:
    try:
        handle = os.open(path, _OPENED, mode)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle = os.open(path, _OPENED, mode)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no regular file")
        with contextlib.suppress(PermissionError):
            if stat.S_IMODE(found.st_mode) & ~mode:
                os.fchmod(handle, mode)
            if found.st_size == 0 and os.geteuid() == 0:
                owner = path.parent.stat()
                os.fchown(handle, owner.st_uid, owner.st_gid)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _set_aside(path: Path, handle: int) -> bool:
    """Rename a full file, unless another process did meanwhile; return whether `path` must be opened again."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # the process that holds the lock renames: this line still goes to the older file
    if _inode(path) == os.fstat(handle).st_ino:
        path.replace(path.with_name(path.name + ".1"))
    return True


class NewLines:
    """Reads what was appended to such a file since the last call, across its renaming.

    It keeps its file open, and for one round the renamed one: a line may still be written there.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        """Prepare.

        Args:
            path: The file.
            from_end: Begin at its present end; otherwise with the content of the older file.
        """
        self._path = path
        self._older = path.with_name(path.name + ".1")
        self._open: list[_OpenFile] = []
        self._begun = from_end
        self._older_inode = _inode(self._older)
        if from_end and (present := _OpenFile.of(path)) is not None:
            present.skip()
            self._open = [present]

    def read(self) -> list[bytes]:
        """Return whole lines, without their ends; a truncated file is read from its start.

        Raises:
            OSError: The file is there and cannot be read.
        """
        found: list[bytes] = []
        if not self._begun and (older := _OpenFile.of(self._older)) is not None:
            found += older.rest()
            self._open.append(older)
        self._begun = True
        for file in self._open:
            found += file.rest()
        inodes = [file.inode for file in self._open]
        if _inode(self._path) in inodes[-1:]:
            return found
        new = _OpenFile.of(self._path)  # first: a file renamed before this is the older file then
        older_before, self._older_inode = self._older_inode, _inode(self._older)
        known = (*inodes, older_before, new and new.inode)
        # A file that was created and renamed meanwhile.
        missed = None if self._older_inode in known else _OpenFile.of(self._older)
        for file in filter(None, (missed, new)):
            found += file.rest()
            self._open.append(file)
        while len(self._open) > 2:
            self._open.pop(0).close()
        return found


class _OpenFile:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.inode = os.fstat(file.fileno()).st_ino

    @classmethod
    def of(cls, path: Path) -> _OpenFile | None:
        try:
            return cls(open(path, "rb", opener=opened))
        except FileNotFoundError:
            return None

    def skip(self) -> None:
        self._file.seek(0, os.SEEK_END)

    def rest(self) -> list[bytes]:
        start = self._file.tell()
        if os.fstat(self._file.fileno()).st_size < start:
            start = self._file.seek(0)
        text = self._file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._file.seek(start + len(whole))
        return [line for line in whole.splitlines() if line]

    def close(self) -> None:
        self._file.close()


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
