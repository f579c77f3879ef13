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
    """Give these users, and root, read and search access to a folder that root owns, but no write access.

    It replaces the list of before: a user that it does not name loses access. A group is not enough, because many
    users may have the same. The list is written as the kernel stores it (linux/posix_acl_xattr.h): each entry a tag,
    its permissions and an id.

    Args:
        folder: The folder.
        users: The users.

    Raises:
        OSError: The file system has no access control lists, or the folder does not exist.
    """
    no_id = 0xFFFFFFFF
    entries = (
        (_USER_OBJ, 7, no_id),
        *((_USER, 5, user_id) for user_id in sorted(set(users))),
        (_GROUP_OBJ, 0, no_id),
        (_MASK, 5, no_id),
        (_OTHER, 0, no_id),
    )
    rows = b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(folder, _ATTRIBUTE, struct.pack("<I", 2) + rows)


def admitted(folder: Path) -> frozenset[int]:
    """Return the users that a folder's access control list names; none where it has no list, or does not exist."""
    try:
        rows = os.getxattr(folder, _ATTRIBUTE)[4:]
    except OSError:
        return frozenset()
    return frozenset(number for tag, _, number in struct.iter_unpack("<HHI", rows) if tag == _USER)


_ATTRIBUTE = "system.posix_acl_access"
_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
