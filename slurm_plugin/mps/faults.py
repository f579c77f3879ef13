r"""Parse faults in an MPS server's log: the client that caused one, and the clients that ended with it.

Recorded on an H200 (driver 580.159, CUDA 13.0), one client (1385) writing to an impossible address:

    [2026-11-22 04:42:38.879 Control  1082] NEW CLIENT 1387 from user 0: Server already exists
    [2026-11-22 04:42:39.767 Server  1122] Client {PID: 1385, Context: 1} encountered a fatal GPU error.
    [2026-11-22 04:42:39.767 Server  1122] The following client process have a sticky error set:
    [2026-11-22 04:42:39.767 Server  1122] 1385
    [2026-11-22 04:42:39.767 Server  1122] 1387

The log belongs to root: no client can write into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(r"^\[[^\]]{1,40} Server +(\d{1,10})\] (.{0,200})")
_CLIENT = re.compile(r"^\[[^\]]{1,40} Control +\d{1,10}\] NEW CLIENT (\d{1,10}) from user (\d{1,10}):")
_CULPRIT = re.compile(r"^Client \{PID: (\d{1,10}), Context(?: ID)?: \d+\} encountered a fatal GPU error")
_LIST = "The following client process have a sticky error set"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        server: Pid of the MPS server.
        culprit: Pid of the client that caused it.
        ended: Pids of all clients that ended with it, including the culprit.
        user_id: The culprit's user, as the kernel named it to the daemon; None if these lines do not show it.
    """

    server: int
    culprit: int
    ended: tuple[int, ...]
    user_id: int | None = None


def faults_in(lines: Iterable[str]) -> tuple[Fault, ...]:
    """Return the faults in these lines of a control daemon's log."""
    found: list[Fault] = []
    culprits: dict[int, tuple[int, int | None]] = {}
    lists: dict[int, list[int]] = {}
    users: dict[int, int] = {}
    for line in lines:
        client = _CLIENT.match(line)
        if client:
            users[int(client[1])] = int(client[2])
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        server, text = int(match[1]), match[2].strip()
        culprit = _CULPRIT.match(text)
        if culprit:
            pid = int(culprit[1])
            culprits.setdefault(server, (pid, users.get(pid)))
        elif text.startswith(_LIST):
            lists[server] = []
        elif server in lists and text.isdigit() and len(text) <= 10:
            lists[server].append(int(text))
        elif server in lists:
            _close(server, culprits, lists, found)
    for server in list(lists):
        _close(server, culprits, lists, found)
    return tuple(found)


def _close(
    server: int,
    culprits: dict[int, tuple[int, int | None]],
    lists: dict[int, list[int]],
    found: list[Fault],
) -> None:
    ended = lists.pop(server)
    if server in culprits:
        pid, user_id = culprits.pop(server)
        found.append(Fault(server=server, culprit=pid, ended=tuple(ended), user_id=user_id))
