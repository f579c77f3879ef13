"""Find what prevents files from being changed, before any of them is changed. Read-only."""

from __future__ import annotations

import array
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_GET_FLAGS = 0x80086601
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
"""ioctl_iflags(2): FS_IOC_GETFLAGS, and the attributes that chattr(1) calls i and a."""
MOUNTS = Path("/proc/self/mountinfo")


class PlannedFile(Protocol):
    """A file to be changed; the fields are described at `together.Write`."""

    @property
    def path(self) -> Path: ...  # noqa: D102
    @property
    def new(self) -> bytes | None: ...  # noqa: D102
    @property
    def folder(self) -> bool: ...  # noqa: D102


def obstacles(wanted: Sequence[PlannedFile]) -> list[str]:
    """Return why files cannot be changed, one line per reason."""
    mounts = _mounts()
    found = [f"{each.path}: {why}" for each in wanted for why in _of_file(each, mounts)]
    return list(dict.fromkeys([*found, *_of_space(wanted)]))


def _of_file(each: PlannedFile, mounts: frozenset[str]) -> Iterator[str]:
    if each.path.is_symlink() and not each.path.exists():
        yield f"a link that leads nowhere ({os.readlink(each.path)}); create its file, or remove the link"
        return
    path = each.path.resolve()
    if path.exists() and not path.is_file():
        yield "is no file"
        return
    if str(path) in mounts:
        yield "is mounted by itself (a bind mount) and cannot be replaced; change it where it comes from"
    folder = path.parent
    if not folder.exists() and not each.folder:
        yield f"there is no folder {folder} on this machine; run this where it is, or create it"
        return
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        yield f"{folder} is no folder"
    elif (flag := _flag(path)) or (flag := _flag(folder)):
        yield f"chattr(1) has made it {flag}; remove that with `chattr -i -a` first"
    elif not os.access(folder, os.W_OK | os.X_OK):
        read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
        yield (
            f"{folder} is on a read-only file system"
            if read_only
            else f"{folder}: Permission denied; run as root"
        )


def _of_space(wanted: Sequence[PlannedFile]) -> Iterator[str]:
    """Yield the file systems without space for the drafts of all files."""
    needs: dict[int, tuple[Path, int, int]] = {}
    for each in wanted:
        folder = each.path.resolve().parent
        while not folder.is_dir() and folder != folder.parent:
            folder = folder.parent
        block = max(os.statvfs(folder).f_frsize, 1)
        _, blocks, files = needs.get(folder.stat().st_dev, (folder, 0, 0))
        more = -(-len(each.new or b"") // block) + 1
        needs[folder.stat().st_dev] = (folder, blocks + more, files + 1)
    for folder, blocks, files in needs.values():
        there = os.statvfs(folder)
        free = there.f_bfree if os.geteuid() == 0 else there.f_bavail
        if blocks > free or (there.f_files and files > there.f_ffree):
            yield f"{folder}: its file system is full; {blocks * there.f_frsize >> 10} KiB are needed"


def _flag(path: Path) -> str:
    flags = array.array("L", [0])
    with suppress(OSError):  # a file system without such attributes, or no file
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(handle, _GET_FLAGS, flags)
        finally:
            os.close(handle)
    return "immutable" if flags[0] & _IMMUTABLE else "append-only" if flags[0] & _APPEND_ONLY else ""


def _mounts() -> frozenset[str]:
    """Return the mount points (proc(5): the fifth word, with spaces and others in octal)."""
    try:
        rows = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return frozenset()
    words = (row.split(" ")[4] for row in rows if row.count(" ") > 4)
    return frozenset(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), word) for word in words)
