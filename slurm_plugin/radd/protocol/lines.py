"""One JSON line in, one out: radd's messages on a socket."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.errors import WireError
from slurm_plugin.core.units import KIB

REQUEST_LIMIT = 256 * KIB
"""Longest request, including its newline. The shim sends no longer one (lua/rad_link.lua): a script's first 64 KiB,
at most doubled by escapes, and at most 2 KiB of each other field."""

REPLY_LIMIT = 64 * KIB
"""Longest reply that the shim reads."""

LONGEST_REFUSAL = 300
"""Characters of a refusal, in the reply and in the log."""

DEADLINE_S = 1.0
"""A peer that takes longer to send or to read is disconnected; the shim itself gives up after 0.1 s."""


def peer_uid(connection: socket.socket) -> int:
    """Return the uid of the process that connected (unix(7), SO_PEERCRED: pid, uid, gid)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def read_line(connection: socket.socket, deadline: Deadline) -> bytes:
    """Return one line, without ever storing more than the longest one.

    Args:
        connection: A client's connection.
        deadline: When the line must be complete.

    Raises:
        WireError: It does not end in time or within the limit, or something follows it.
    """
    line = bytearray()
    while len(line) < REQUEST_LIMIT:
        connection.settimeout(max(deadline.remaining_s(), 0.001))
        try:
            chunk = connection.recv(min(65536, REQUEST_LIMIT - len(line)))
        except TimeoutError as exc:
            raise WireError(f"no whole line in {DEADLINE_S:g} s") from exc
        if not chunk:
            raise WireError("half a line")
        ends_at = chunk.find(b"\n")
        line += chunk
        if ends_at == len(chunk) - 1:
            return bytes(line)
        if ends_at >= 0:
            raise WireError("more than one line")
        if deadline.passed():
            raise WireError(f"no whole line in {DEADLINE_S:g} s")
    raise WireError(f"a request of more than {REQUEST_LIMIT} bytes")


def message_of(line: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a line; bytes that are not UTF-8 are kept as surrogates.

    Raises:
        WireError: It is not a JSON object.
    """
    try:
        message = json.loads(line.decode(errors="surrogateescape"))
    except (ValueError, RecursionError) as exc:
        raise WireError("a request that is no JSON") from exc
    if not isinstance(message, dict):
        raise WireError("a request that is no JSON object")
    return message


def encode(reply: Mapping[str, Any]) -> bytes:
    """Return a reply as one line.

    Raises:
        WireError: It is longer than REPLY_LIMIT.
    """
    text = json.dumps(reply, ensure_ascii=False, separators=(",", ":"))
    line = text.encode(errors="surrogateescape") + b"\n"
    if len(line) > REPLY_LIMIT:
        raise WireError(f"a reply of {len(line)} bytes")
    return line
