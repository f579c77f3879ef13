#!/usr/bin/env python3
"""A stand-in for nvidia-cuda-mps-control: same options, same commands, no GPU.

Files next to it change what it does: `hang` (the daemon never answers), `refuse` (it ends at once), `no-server`
(start_server starts none); `clients` holds the pids that are connected. What it is reported goes to `commands`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(sys.argv[0]).resolve().parent
PIPE = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])


def serve() -> None:
    """Be the daemon, in the foreground."""
    if (HERE / "refuse").exists():
        sys.exit("refused")
    server: subprocess.Popen[bytes] | None = None
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(PIPE / "control"))
    (PIPE / "control").chmod(0o666)  # as the real one
    (PIPE / "open").touch()
    (PIPE / "open").chmod(0o666)  # the real one opens its lock and pid files so
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        client, _ = listener.accept()
        if (HERE / "hang").exists():
            time.sleep(60)
        command = client.recv(4096).decode().split()
        with (HERE / "commands").open("a") as log:
            log.write(
                " ".join([os.environ.get("CUDA_VISIBLE_DEVICES", ""), str(os.getuid()), *command]) + "\n"
            )
        answer = ""
        if command[0] == "start_server" and not (HERE / "no-server").exists():
            server = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
        elif command[0] == "get_server_list" and server is not None and Path(f"/proc/{server.pid}").exists():
            answer = f"{server.pid}\n"
        elif command[0] == "get_client_list" and (HERE / "clients").exists():
            answer = (HERE / "clients").read_text()
        elif command[0] == "quit" and server is not None:
            os.kill(server.pid, signal.SIGKILL)
        client.sendall(answer.encode())
        client.close()
        if command[0] == "quit":
            return  # the pipe directory's files stay, as with the real one


def ask() -> None:
    """Be the client: one command from standard input."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(PIPE / "control"))
        except OSError:
            sys.exit("Cannot find MPS control daemon process")
        connection.sendall(sys.stdin.readline().encode())
        sys.stdout.write(connection.recv(4096).decode())


if __name__ == "__main__":
    serve() if "-f" in sys.argv else ask()
