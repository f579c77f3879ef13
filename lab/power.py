"""Simulate a machine without power, as seen by its clients: each waits until its time-out."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lab.daemons import TIME_FACTOR, wait_until
from slurm_plugin.core.clock import SystemClock

ADDRESS = "127.0.0.1"
_REFUSED_S = 0.2


@contextmanager
def without_power(port: int) -> Iterator[None]:
    """Keep connections to a free port from being answered or refused, as long as the context lasts.

    It listens, and does not accept: once its queue is full, the kernel drops further connections (listen(2), tcp(7)).

    Args:
        port: The port of the stopped server, whose children may hold it for a moment.
    """
    with ExitStack() as open_sockets:
        listener = open_sockets.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        limit_s = 10 * TIME_FACTOR
        wait_until("the port is free", lambda: _bound(listener, port), timeout_s=limit_s, clock=SystemClock())
        listener.listen(0)
        queued = True
        while queued:
            client = open_sockets.enter_context(socket.socket())
            client.settimeout(_REFUSED_S)
            try:
                client.connect((ADDRESS, port))
            except TimeoutError:
                queued = False
        yield


def _bound(listener: socket.socket, port: int) -> bool:
    try:
        listener.bind((ADDRESS, port))
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            raise
        return False
    return True
