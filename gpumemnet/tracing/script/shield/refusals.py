"""Decide which file system changes a trace refuses, where the kernel allows no separate view. No writes.

Existing files stay unchanged. New files may be made, changed and removed; they stay, as nothing proves afterwards that
no other program uses them. Pipes, sockets and character devices hold nothing that could be lost.
"""

from __future__ import annotations

import os
import re
import stat
from typing import NamedTuple

WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_ABOUT_ITSELF = re.compile(
    r"/proc/\d+/(task/\d+/)?(comm|coredump_filter|oom_score_adj|setgroups|timerslack_ns|[gu]id_map)"
)
"""What a process writes about itself, as a thread's name; it ends with the process."""


class ChangingCall(NamedTuple):
    """System call that changes the file system.

    Attributes:
        does: "open", "make", "link", "remove", "rename", "mark" (mode, owner, times, attributes, size) or
            "mark of link".
        path: Absolute path; for a symbolic link, `follows` says which file is meant.
        to: The new name for "rename" and "link".
        flags: Flags of open(2).
        follows: Whether the target of a link is meant.
    """

    does: str
    path: str
    to: str = ""
    flags: int = 0
    follows: bool = True


class Refusals:
    """Judges changes and remembers the files that the trace made.

    Args:
        scratch: Folders of the trace.

    Attributes:
        refused: The first refused path; "" if none was refused.
    """

    def __init__(self, *scratch: str) -> None:
        self.refused = ""
        self._made = {os.path.realpath(folder) for folder in scratch}

    def allows(self, change: ChangingCall) -> bool:
        """Judge a change, and record what it will make.

        Args:
            change: The change, before it is made.
        """
        path = _place(change.path, follows=change.follows)
        to = _place(change.to, follows=False) if change.to else ""
        lost = [each for each in (path, to) if self._loses(change, each)]
        self.refused = self.refused or "".join(lost[:1])
        if not lost:
            self._note(change, path, to)
        return not lost

    def _loses(self, change: ChangingCall, path: str) -> bool:
        if not path or self._is_new(path) or _ABOUT_ITSELF.fullmatch(path):
            return False
        there = _status(path)
        if there is None or change.does in ("make", "link"):
            return False
        if change.does == "open":
            writes = change.flags & WRITES and not change.flags & os.O_EXCL
            return bool(writes) and (stat.S_ISREG(there) or stat.S_ISBLK(there))
        return not stat.S_ISCHR(there)

    def _note(self, change: ChangingCall, path: str, to: str) -> None:
        made = to or path
        creates = change.does in ("make", "rename") or change.flags & os.O_CREAT
        creates = creates or (
            change.does == "link" and self._is_new(path)
        )  # else it is the old file under another name
        if creates and _status(made) is None:
            self._made.add(made)

    def _is_new(self, path: str) -> bool:
        while path not in self._made:
            if path == os.path.dirname(path):
                return False
            path = os.path.dirname(path)
        return True


def _place(path: str, *, follows: bool) -> str:
    """Return the path with links resolved."""
    if follows:
        return os.path.realpath(path)
    path = path.rstrip("/") or "/"
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _status(path: str) -> int | None:
    """Return a file's type and mode; None if there is none."""
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None
