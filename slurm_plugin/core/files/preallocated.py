"""Small files that can be written even if the disk is full.

    RUN/spare/0 ... 63     one page and one inode each, created while there is space

If there is no space for a file, it takes over a spare one: it is written into it and renamed, which needs neither a
block nor an inode. Such a file is as long as a spare one, padded with line ends, and becomes a spare one again.
"""

from __future__ import annotations

import errno
import itertools
import os
from contextlib import suppress
from pathlib import Path

from slurm_plugin.core.files.atomic import draft_of, replace_file
from slurm_plugin.core.units import KIB

SPARES = 64
"""This many jobs may start on a node with a full disk, in addition to those that run."""

SPARE_BYTES = 4 * KIB

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class SpareFiles:
    """The spare files of a node, below paths.run."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "spare"

    def fill(self) -> None:
        """Create missing spare files, as far as there is space."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            there = set(os.listdir(self._folder))
            free = (name for name in map(str, range(2 * SPARES)) if name not in there)
            for name in itertools.islice(free, max(0, SPARES - len(there))):
                _reserve(self._folder / name)

    def write(self, path: Path, content: bytes, *, mode: int = 0o444) -> None:
        """Replace a file as a whole; its folder must exist.

        Args:
            path: The file.
            content: All of its new content.
            mode: Its permissions.

        Raises:
            OSError: It cannot be written, and no spare file is left; the old content is unchanged.
        """
        try:
            replace_file(path, content, mode=mode)
        except OSError as exc:
            if exc.errno not in _FULL or len(content) > SPARE_BYTES or not self._take(path, content, mode):
                raise

    def discard(self, path: Path) -> None:
        """Remove a file; nothing happens if there is none."""
        with suppress(OSError):
            if path.lstat().st_size == SPARE_BYTES:
                path.rename(self._folder / f"used-{path.name}")
                return
        with suppress(OSError):
            path.unlink(missing_ok=True)

    def _take(self, path: Path, content: bytes, mode: int) -> bool:
        """Turn a spare file into this file; return whether there was one."""
        draft = draft_of(path)
        try:
            names = os.listdir(self._folder)
        except OSError:
            return False
        for name in names:
            try:
                (self._folder / name).rename(draft)
            except OSError:
                continue  # another hook was faster
            handle = os.open(draft, _FLAGS)
            try:
                os.pwrite(handle, content.ljust(SPARE_BYTES, b"\n"), 0)
                os.fchmod(handle, mode)
            finally:
                os.close(handle)
            draft.rename(path)
            return True
        return False


def _reserve(path: Path) -> None:
    """Create a file with a whole page allocated; nothing stays if that fails."""
    handle = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o444)
    try:
        os.posix_fallocate(handle, 0, SPARE_BYTES)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
