"""Write files atomically: a reader finds all of the old content or all of the new.

The new content goes into a draft next to the file, `.NAME.THREAD.new`, which is renamed to the file when it is
complete. Each writer has a separate draft, so of several at once the last one's content stays, and none of them fails.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(path: Path, content: bytes, *, mode: int = 0o644, synced: bool = False) -> None:
    """Write a file, which replaces any old one; its folder must exist.

    Args:
        path: The file.
        content: All of its new content.
        mode: Its permissions, whatever the umask.
        synced: Whether it must survive a crash of the machine, too; files below paths.run need not.

    Raises:
        OSError: It cannot be written; the old content is unchanged.
    """
    _write(path, content, mode, synced=synced)


def rewrite_file(path: Path, content: bytes) -> None:
    """Replace the content of a file, through links, which stay. The content survives a crash of the machine, too.

    Args:
        path: The file; it keeps its owner, permissions and other attributes (ACLs, SELinux label).
        content: All of its new content.

    Raises:
        OSError: It cannot be written; the old content is unchanged.
    """
    path = path.resolve(strict=True)
    found = path.stat()
    owner = (found.st_uid, found.st_gid)
    _write(path, content, stat.S_IMODE(found.st_mode), owner=owner, like=path, synced=True)


def clear_drafts(folder: Path, *, before_s: float) -> None:
    """Remove drafts of writers that were killed.

    Args:
        folder: Folder of files that are written atomically.
        before_s: Seconds since the epoch; a draft that was modified later may still be in use.
    """
    with suppress(OSError):
        for draft in folder.glob("*.new"):
            if draft.lstat().st_mtime < before_s:
                draft.unlink(missing_ok=True)


def draft_of(path: Path) -> Path:
    """Return the path of this thread's draft: no other thread of the machine has its id (gettid(2))."""
    return path.with_name(f".{path.name}.{threading.get_native_id()}.new")


def fill(
    path: Path,
    content: bytes,
    mode: int,
    *,
    owner: tuple[int, int] = (-1, -1),
    like: Path | None = None,
    synced: bool = True,
) -> None:
    """Write a new file; after a failure part of it may stay.

    Args:
        path: The file.
        content: All of its content.
        mode: Its permissions, whatever the umask.
        owner: Ids of its user and group; -1 for those of the writer.
        like: A file from which it gets its attributes (ACLs, SELinux label).
        synced: Whether it must survive a crash of the machine, too.

    Raises:
        OSError: It cannot be written.
    """
    handle = os.open(path, _FLAGS, 0o600)
    try:
        if owner != (-1, -1):
            os.fchown(handle, *owner)
        os.fchmod(handle, mode)
        for name in os.listxattr(like) if like else ():
            with suppress(OSError):  # a file system may have attributes that cannot be set
                os.setxattr(handle, name, os.getxattr(str(like), name))
        if os.write(handle, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if synced:
            os.fsync(handle)
    finally:
        os.close(handle)


def _write(
    path: Path,
    content: bytes,
    mode: int,
    *,
    owner: tuple[int, int] = (-1, -1),
    synced: bool,
    like: Path | None = None,
) -> None:
    """Write the draft and rename it to the file; a draft that cannot be written is removed."""
    draft = draft_of(path)
    try:
        draft.unlink(missing_ok=True)  # of a writer that was killed
        fill(draft, content, mode, owner=owner, like=like, synced=synced)
        draft.replace(path)
    except OSError as exc:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise OSError(exc.errno, exc.strerror, str(path)) from exc
