"""Access to an MPS daemon's folders and files: only the users with a job on it have it."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path


def close_files(folder: Path) -> None:
    """Remove the users' access to the files that the daemon opens to all (0666): they could fill paths.run.

    Clients need only its sockets and its FIFO, as tested on an H200 (driver 580.159).
    """
    for path in folder.iterdir():
        if stat.S_ISREG(path.lstat().st_mode):
            path.chmod(0o600)


def admit(folder: Path, users: Iterable[int]) -> None:
    """Give these users, and root, access to a folder of root's and to the daemon's sockets in it; which stay root's.

    It replaces the lists of before: a user that they do not name loses access, also to a socket that a process of the
    user opened (O_PATH) while it had access. A group is not enough, because many users may have the same.

    Args:
        folder: The folder.
        users: The users.

    Raises:
        OSError: The file system has no access control lists, or the folder does not exist.
    """
    admitted_users = sorted(set(users))
    os.setxattr(folder, _ATTRIBUTE, _access_list(admitted_users, _READ | _SEARCH))
    for path in folder.iterdir():
        if _is_for_clients(path):
            os.setxattr(path, _ATTRIBUTE, _access_list(admitted_users, _READ | _WRITE))


def _access_list(users: Iterable[int], permissions: int) -> bytes:
    """Return a list as the kernel stores it (linux/posix_acl_xattr.h): each entry a tag, its permissions and an id."""
    no_id = 0xFFFFFFFF
    entries = (
        (_USER_OBJ, _READ | _WRITE | _SEARCH, no_id),
        *((_USER, permissions, user_id) for user_id in users),
        (_GROUP_OBJ, 0, no_id),
        (_MASK, permissions, no_id),
        (_OTHER, 0, no_id),
    )
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def _is_for_clients(path: Path) -> bool:
    """Return whether a path is a socket or FIFO that the daemon opened to all, or that has a list by now."""
    mode = path.lstat().st_mode
    if not stat.S_ISSOCK(mode) and not stat.S_ISFIFO(mode):
        return False
    return bool(mode & stat.S_IWOTH) or _has_list(path)


def _has_list(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, _ATTRIBUTE))
    except OSError:
        return False


_ATTRIBUTE = "system.posix_acl_access"
_READ, _WRITE, _SEARCH = 4, 2, 1
_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
