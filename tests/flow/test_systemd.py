"""radd and rad-monitor as services of Type=notify, radd behind a socket unit; the manager here is this test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flow.test_node_hooks import Hooks
from flow.test_submit import KEY, TOML, wait_until

from tests.timing import within

PATIENCE_S = within(30.0)
GIVEN = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); "
    "os.execv(sys.executable, [sys.executable, '-I', '-m', *sys.argv[2:]])"
)
"""What systemd does between fork() and exec() for a service with one socket (sd_listen_fds(3))."""


class Manager:
    """Listens as systemd does, and starts services."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._socket.settimeout(PATIENCE_S)
        self.env = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify")}
        self._log = folder / "log"

    def start(self, argv: list[str], listener: socket.socket) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", GIVEN, str(listener.fileno()), *argv]
        with self._log.open("ab") as log:
            fds = (listener.fileno(),)
            return subprocess.Popen(argv, env=self.env, stdout=log, stderr=log, pass_fds=fds)

    def reported(self) -> str:
        """Return the first line of the next output."""
        return self._socket.recv(1000).decode().partition("\n")[0]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


def client(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(path))
    connection.sendall(b'{"op":"ping"}\n')
    return connection


def listens(path: Path) -> bool:
    try:
        client(path).close()
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


def configure(folder: Path) -> list[str]:
    (folder / "key").write_bytes(KEY)
    (folder / "key").chmod(0o600)
    (folder / "rad.toml").write_text(TOML.format(folder=folder, mode="enforce"))
    return ["slurm_plugin.radd", "--config", str(folder / "rad.toml")]


def test_a_request_while_radd_restarts_is_answered(tmp_path: Path, manager: Manager) -> None:
    argv, path = configure(tmp_path), tmp_path / "radd.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(128)
        for _ in range(2):
            with client(path) as early:  # no job listens yet, but systemd's socket takes it
                radd = manager.start(argv, listener)
                try:
                    assert manager.reported() == "READY=1"
                    assert b"pong" in early.recv(100)
                    radd.send_signal(signal.SIGHUP)
                    assert [manager.reported(), manager.reported()] == ["RELOADING=1", "READY=1"]
                finally:
                    radd.terminate()
                assert manager.reported() == "STOPPING=1"
                assert radd.wait(PATIENCE_S) == 0
            assert path.exists(), "the socket is the manager's"


def test_a_socket_at_another_path_leaves_radd_its_own(tmp_path: Path, manager: Manager) -> None:
    argv = configure(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "elsewhere.sock"))
        listener.listen(128)
        radd = manager.start(argv, listener)
        try:
            assert manager.reported() == "READY=1"
            with client(tmp_path / "radd.sock") as connected:
                assert b"pong" in connected.recv(100)
        finally:
            radd.terminate()
        assert radd.wait(PATIENCE_S) == 0


ACTIVATE = shutil.which("systemd-socket-activate")


@pytest.mark.skipif(ACTIVATE is None, reason="no systemd-socket-activate here")
def test_systemds_own_program_hands_it_the_socket(tmp_path: Path) -> None:
    argv, path = configure(tmp_path), tmp_path / "radd.sock"
    command = [str(ACTIVATE), "--listen", str(path), sys.executable, "-I", "-m", *argv]
    with (tmp_path / "log").open("wb") as log:
        radd = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: listens(path))  # it is there a moment before any job listens
        with client(path) as connected:
            assert b"pong" in connected.recv(100)
    finally:
        radd.terminate()
    assert radd.wait(PATIENCE_S) == 0


def test_a_monitor_says_when_it_samples(tmp_path: Path, manager: Manager) -> None:
    Hooks(tmp_path)
    argv = [sys.executable, "-I", "-m", "slurm_plugin.monitor.daemon", "--config", str(tmp_path / "rad.toml")]
    monitor = subprocess.Popen(argv, env=manager.env, stderr=subprocess.DEVNULL)
    try:
        assert manager.reported() == "READY=1"
        monitor.send_signal(signal.SIGHUP)
        assert [manager.reported(), manager.reported()] == ["RELOADING=1", "READY=1"]
    finally:
        monitor.terminate()
    assert manager.reported() == "STOPPING=1"
    assert monitor.wait(PATIENCE_S) == 0
