"""What a daemon says to systemd, and what it is given by it; without systemd each of these does nothing.

The protocols are plain enough to need no library: sd_notify(3), sd_listen_fds(3) and the prefixes of sd-daemon(3).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

_FIRST_FD = 3
_PRIORITIES = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
    (logging.NOTSET, 7),
)
"""Python's levels and syslog's, most urgent first (syslog(3))."""


def notify(state: str, env: Mapping[str, str]) -> None:
    """Tell systemd how this service is; a manager that does not listen is no trouble of ours.

    Args:
        state: Lines of sd_notify(3), such as "READY=1" or "STATUS=mode enforce".
        env: The environment; NOTIFY_SOCKET names where to.
    """
    address = env.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
        speaker.setblocking(False)
        speaker.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


def inherited_listener(path: Path, env: MutableMapping[str, str]) -> socket.socket | None:
    """Return the listening socket that a socket unit opened at a path; None if there is none for this process.

    Args:
        path: Where this daemon is to listen. A socket at another path (rad.toml was changed and the unit was not) is
            left alone.
        env: The environment; its LISTEN_* are taken out, so that no child believes they are meant for it.
    """
    pid, count = env.pop("LISTEN_PID", ""), env.pop("LISTEN_FDS", "0")
    env.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return None
    found = None
    for fd in range(_FIRST_FD, _FIRST_FD + int(count)):
        os.set_inheritable(fd, False)
        candidate = socket.socket(fileno=os.dup(fd))  # a socket object closes what it holds
        ours = candidate.family == socket.AF_UNIX and candidate.type == socket.SOCK_STREAM
        if found is None and ours and candidate.getsockname() == str(path):
            found = candidate
        else:
            candidate.close()
    return found


def priority_prefix(level: int) -> str:
    """Return what makes the journal file a line under its level.

    >>> priority_prefix(logging.WARNING)
    '<4>'
    """
    return f"<{next(number for least, number in _PRIORITIES if level >= least)}>"


def writes_to_journal(env: Mapping[str, str]) -> bool:
    """Return whether standard error is the journal (systemd.exec(5), JOURNAL_STREAM: device and inode)."""
    try:
        found = os.fstat(2)
    except OSError:
        return False
    return env.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
