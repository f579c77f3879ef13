"""Lua as a subprocess: every version that the machine has, one line in, one line out."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.timing import within

HERE = Path(__file__).resolve().parent
SHIMS = HERE.parents[1] / "slurm_plugin" / "lua"
ANSWER_S = within(40)
VERSIONS = [name for name in ("lua5.1", "lua5.3", "lua5.4") if shutil.which(name)]


class LuaProgram:
    """A Lua script that answers lines."""

    def __init__(self, lua: str, script: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [lua, str(HERE / script), str(SHIMS), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=None if env is None else {**os.environ, **env},
        )

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def ask(self, line: bytes) -> bytes:
        """Send a line and return the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()
        assert select.select([self._process.stdout], [], [], ANSWER_S)[0], "the program hangs"
        answer = self._process.stdout.readline()
        assert answer.endswith(b"\n"), "the program died"
        return answer[:-1]

    def call(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send a JSON command and return the JSON answer."""
        text = self.ask(json.dumps(command, ensure_ascii=False).encode(errors="surrogateescape"))
        answer: dict[str, Any] = json.loads(text.decode(errors="surrogateescape"))
        return answer

    def close(self) -> None:
        """End the program."""
        self._process.communicate(timeout=within(10))


class FakeRadd:
    """A socket whose answers a test chooses, and which remembers what it received."""

    def __init__(self, path: Path, answer: Callable[[socket.socket, bytes], None]) -> None:
        self.received: list[dict[str, Any]] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                line = b""
                while not line.endswith(b"\n"):
                    chunk = connection.recv(1 << 16)
                    if not chunk:
                        break
                    line += chunk
                self.received.append(json.loads(line.decode(errors="surrogateescape")))
                try:
                    self._answer(connection, line)
                except OSError:
                    continue

    def close(self) -> None:
        """Stop listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=within(5))


def replies(reply: dict[str, Any] | bytes) -> Callable[[socket.socket, bytes], None]:
    """Answer every request with the same reply."""
    text = reply if isinstance(reply, bytes) else json.dumps(reply).encode() + b"\n"

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(text)

    return answer
