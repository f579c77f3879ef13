from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.errors import ConfigError, RadError, WireError
from slurm_plugin.radd.protocol.lines import REQUEST_LIMIT
from slurm_plugin.radd.protocol.server import THREADS, Server
from tests.timing import within

PATIENCE_S = within(5.0)
ME = frozenset({os.getuid()})


def handler(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if message.get("op") == "refuse":
        raise WireError(str(message.get("why", "no")))
    if message.get("op") == "bug":
        raise KeyError("bug")
    return {"echo": message}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "radd.sock"


@pytest.fixture
def server(path: Path) -> Iterator[Server]:
    server = Server(path, handler, trusted_uids=ME, clock=SystemClock())
    server.start()
    yield server
    server.stop()


def test_a_slow_log_delays_no_answer(path: Path) -> None:
    """slurmctld holds its locks for the answer; the shim waits for 0.1 s."""
    heard: list[object] = []
    disk = threading.Event()

    def after(message: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
        disk.wait(PATIENCE_S)
        heard.append((message, reply))

    server = Server(path, handler, trusted_uids=ME, clock=SystemClock(), after=after)
    server.start()
    try:
        with connect(path) as connection:
            connection.sendall(b'{"op":"x"}\n')
            assert json.loads(connection.recv(65536)) == {"echo": {"op": "x"}}
            assert not heard, "the disk is still at it"
            disk.set()
            assert not connection.recv(1), "closed once all is sent"
        assert heard == [({"op": "x"}, {"echo": {"op": "x"}})]
        assert b"error" in ask(path, b'{"op":"refuse"}\n') and len(heard) == 1
    finally:
        server.stop()


def connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(path))
    return connection


def ask(path: Path, data: bytes) -> bytes:
    with connect(path) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def works(path: Path) -> bool:
    answer: object = json.loads(ask(path, b'{"op":"x"}\n'))
    return answer == {"echo": {"op": "x"}}


@pytest.mark.usefixtures("server")
def test_a_line_gets_a_line_and_bytes_survive(path: Path) -> None:
    assert works(path)
    assert b"caf\xe9" in ask(path, b'{"comment":"caf\xe9"}\n')


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    "data", [b"\n", b"[]\n", b"\xff\n", b"{\n", b"[" * 100_000 + b"\n", b'{"op":"refuse"}\n']
)
def test_what_is_no_request_gets_an_error_or_nothing(path: Path, data: bytes) -> None:
    answer = ask(path, data)
    assert not answer or "error" in json.loads(answer)
    assert works(path)


@pytest.mark.usefixtures("server")
def test_a_bug_costs_one_answer_and_no_thread(path: Path) -> None:
    for _ in range(2 * THREADS):
        assert "internal error" in json.loads(ask(path, b'{"op":"bug"}\n'))["error"]
    assert works(path)


@pytest.mark.usefixtures("server")
def test_half_lines_and_endless_lines_are_dropped(path: Path) -> None:
    with connect(path) as half:
        half.sendall(b'{"op"')
        half.shutdown(socket.SHUT_WR)
        assert "half a line" in json.loads(half.recv(1000))["error"]
    with connect(path) as endless:
        try:
            endless.sendall(b"x" * (2 * REQUEST_LIMIT))
            assert b"error" in endless.recv(1000)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert works(path)


@pytest.mark.usefixtures("server")
def test_silent_clients_are_cut_off_and_others_answered_meanwhile(path: Path) -> None:
    silent = [connect(path) for _ in range(THREADS - 1)]
    assert works(path)
    for each in silent:
        assert b"no whole line" in each.recv(1000), "it was not cut off"
        each.close()


def test_a_peer_that_is_not_trusted_is_not_heard(path: Path) -> None:
    server = Server(path, handler, trusted_uids=frozenset({os.getuid() + 1}), clock=SystemClock())
    server.start()
    with connect(path) as connection:
        assert connection.recv(10) == b"", "closed before a word is read"
    server.stop()


def test_a_folder_that_is_not_its_own_is_no_bug(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "socket", refuse)  # root, which may run this, may write anywhere
    with pytest.raises(
        ConfigError, match=r"Permission denied; start it by systemctl, or as root: install -d -o \d+ /"
    ):
        Server(path, handler, trusted_uids=ME, clock=SystemClock()).bind()


@pytest.mark.parametrize("owner_uid", [None, 4711])
def test_no_other_user_can_connect(path: Path, owner_uid: int | None) -> None:
    server = Server(path, handler, trusted_uids=ME, clock=SystemClock(), owner_uid=owner_uid)
    server.start()
    status = path.stat()
    assert status.st_mode & 0o777 == 0o600
    if os.getuid() == 0:
        assert status.st_uid == (owner_uid or 0)
    server.stop()


def test_a_stale_socket_is_replaced_and_a_live_one_is_not(path: Path, server: Server) -> None:
    second = Server(path, handler, trusted_uids=ME, clock=SystemClock())
    with pytest.raises(RadError, match="another radd"):
        second.start()
    assert works(path)
    server.stop()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    third = Server(path, handler, trusted_uids=ME, clock=SystemClock())
    third.start()
    assert works(path)
    third.stop()
    assert not path.exists()


@pytest.mark.usefixtures("server")
def test_many_at_once_all_get_their_own_answer(path: Path) -> None:
    answers: dict[int, bytes] = {}

    def one(number: int) -> None:
        answers[number] = ask(path, json.dumps({"n": number}).encode() + b"\n")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert {number: json.loads(text)["echo"]["n"] for number, text in answers.items()} == {
        n: n for n in range(50)
    }


@pytest.mark.usefixtures("server")
def test_a_refusal_quotes_little_and_nothing_that_a_terminal_obeys(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loud = json.dumps({"op": "refuse", "why": "\x1b[2J" + "x" * 70_000}).encode()
    reported = json.loads(ask(path, loud + b"\n"))["error"]
    assert reported.isprintable() and len(reported) <= 300
    assert all(len(record.getMessage()) < 400 for record in caplog.records)
