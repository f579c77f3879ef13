"""What radd reads from its socket."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from importlib import resources

import pytest

from slurm_plugin.core.clock import Deadline, SystemClock
from slurm_plugin.core.errors import WireError
from slurm_plugin.radd.protocol.lines import REPLY_LIMIT, REQUEST_LIMIT, read_line


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


def test_no_job_is_waited_for_without_end() -> None:
    with pytest.raises(WireError, match="no whole line"):
        read_after(b'{"v"', patience_s=0.1)


def longest(size: int) -> bytes:
    return b"x" * (size - 1) + b"\n"


def test_the_longest_line_is_read_and_a_byte_more_is_refused() -> None:
    assert read_after(longest(REQUEST_LIMIT)) == longest(REQUEST_LIMIT)
    with pytest.raises(WireError, match="more than"):
        read_after(longest(REQUEST_LIMIT + 1))


def test_no_more_than_the_longest_line_is_kept_of_a_peer_that_goes_on() -> None:
    here, there = socket.socketpair()
    taken = 0

    class Counted(socket.socket):
        def recv(self, size: int, flags: int = 0) -> bytes:
            nonlocal taken
            chunk = super().recv(size, flags)
            taken += len(chunk)
            return chunk

    def send() -> None:
        with contextlib.suppress(BrokenPipeError):  # the reader gave up
            there.sendall(b"x" * (2 * REQUEST_LIMIT))

    peer = threading.Thread(target=send)
    with Counted(fileno=here.detach()) as counted, there:
        peer.start()
        with pytest.raises(WireError, match="more than"):
            read_line(counted, Deadline(SystemClock(), 30))
        counted.shutdown(socket.SHUT_RDWR)
        peer.join()
    assert taken == REQUEST_LIMIT


@pytest.mark.parametrize("data", [b"{}\n{}\n", b"{}\n{", b"\n\n"])
def test_one_connection_makes_one_request(data: bytes) -> None:
    with pytest.raises(WireError, match="more than one line"):
        read_after(data)


def test_the_shim_has_the_same_limits() -> None:
    shim = resources.files("slurm_plugin").joinpath("lua/rad_link.lua").read_text()
    limits = {name: int(number) for name, number in re.findall(r"local (\w+_LIMIT) = (\d+)", shim)}
    assert limits == {"REQUEST_LIMIT": REQUEST_LIMIT, "REPLY_LIMIT": REPLY_LIMIT}
