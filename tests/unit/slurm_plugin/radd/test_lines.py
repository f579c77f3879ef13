"""What radd reads from its socket."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from slurm_plugin.core.clock import Deadline, SystemClock
from slurm_plugin.core.errors import WireError
from slurm_plugin.radd.lines import read_line


def read_after(*parts: bytes, patience_s: float = 30.0, closes: bool = False) -> bytes:
    """Return the line that a peer sends part by part."""
    here, there = socket.socketpair()

    def send() -> None:
        for part in parts:
            time.sleep(0.02)
            there.sendall(part)
        if closes:
            there.close()

    peer = threading.Thread(target=send)
    peer.start()
    with here, there:
        try:
            return read_line(here, Deadline(SystemClock(), patience_s))
        finally:
            peer.join()


def test_a_line_may_come_in_parts() -> None:
    assert read_after(b'{"v"', b": 1", b"}\n") == b'{"v": 1}\n'


def test_half_a_line_is_none() -> None:
    with pytest.raises(WireError, match="half a line"):
        read_after(b'{"v"', closes=True)


def test_nobody_is_waited_for_without_end() -> None:
    with pytest.raises(WireError, match="no whole line"):
        read_after(b'{"v"', patience_s=0.1)
