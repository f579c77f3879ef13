"""A daemon's messages to systemd and the sockets it gets from it; without systemd each function does nothing.

The protocols are simple enough to need no library: sd_notify(3), sd_listen_fds(3) and the prefixes of sd-daemon(3).
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
"""Levels of Python and of syslog, most urgent first (syslog(3))."""


def notify(state: str, env: Mapping[str, str]) -> None:
    """Report this service's state to systemd; errors are ignored.

    Args:
        state: Lines of sd_notify(3), such as "READY=1" or "STATUS=mode enforce".
        env: The environment; NOTIFY_SOCKET names the socket.
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
            ignored.
        env: The environment; its LISTEN_* are removed, so that no child takes them for its own.
    """
    pid, count = env.pop("LISTEN_PID", ""), env.pop("LISTEN_FDS", "0")
    env.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return None
    found = None
    for fd in range(_FIRST_FD, _FIRST_FD + int(count)):
        os.set_inheritable(fd, False)
        candidate = socket.socket(fileno=os.dup(fd))  # a socket object closes its descriptor
        own = candidate.family == socket.AF_UNIX and candidate.type == socket.SOCK_STREAM
        if found is None and own and candidate.getsockname() == str(path):
            found = candidate
        else:
            candidate.close()
    return found


def priority_prefix(level: int) -> str:
    """Return the prefix by which the journal recognises the level of a line.

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
