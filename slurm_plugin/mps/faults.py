r"""Parse faults in an MPS server's log: the clients that ended with one.

Recorded on an H100 (driver 580.159, CUDA 13.0); client 923, of user 4711, wrote to an impossible address:

    [2026-11-27 03:45:51.725 Control   876] NEW CLIENT 923 from user 0: Server already exists
    [2026-11-27 03:45:52.070 Server   888] Client {PID: 912, Context: 1} encountered a fatal GPU error.
    [2026-11-27 03:45:52.070 Server   888] The following client process have a sticky error set:
    [2026-11-27 03:45:52.070 Server   888] 912
    [2026-11-27 03:45:52.070 Server   888] 923
    [2026-11-27 03:45:52.070 Server   888] 913

The log may name a client that did not cause the fault, and gives user 0 for each client: neither is read. It belongs to
root: no client can write into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LINE = re.compile(r"^\[[^\]]{1,40} Server +(\d{1,10})\] (.{0,200})")
_FATAL = re.compile(r"^Client \{PID: \d{1,10}, Context(?: ID)?: \d+\} encountered a fatal GPU error")
_LIST = "The following client process have a sticky error set"


EndedClients = tuple[int, ...]
"""One fault: pids of all clients that ended with their server, including the one that caused it."""


def faults_in(lines: Iterable[str]) -> tuple[EndedClients, ...]:
    """Return the faults in these lines of a control daemon's log."""
    found: list[EndedClients] = []
    faulted: set[int] = set()
    lists: dict[int, list[int]] = {}
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        server, text = int(match[1]), match[2].strip()
        if _FATAL.match(text):
            faulted.add(server)
        elif text.startswith(_LIST):
            lists[server] = []
        elif server in lists and text.isdigit() and len(text) <= 10:
            lists[server].append(int(text))
        elif server in lists:
            _close(server, faulted, lists, found)
    for server in list(lists):
        _close(server, faulted, lists, found)
    return tuple(found)


def _close(server: int, faulted: set[int], lists: dict[int, list[int]], found: list[EndedClients]) -> None:
    ended = lists.pop(server)
    if server in faulted:
        faulted.remove(server)
        found.append(tuple(ended))
