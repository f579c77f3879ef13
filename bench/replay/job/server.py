"""A warmed-up process that forks one training for each client, so that a job's start-up is not its imports.

    python -m replay.job.server SOCKET [--stand-in]

A client sends what its training needs, with its own output as open files. The child takes the job's environment as its
own, /proc's copy of it included, by which monitors tell whose a GPU process is; it ends when its client does.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from replay.dies import with_parent

PLACES = {"SLURM_JOB_ID": 10, "SLURM_RESTART_COUNT": 4}
"""Variables that this process must be started with, this many digits long: a child writes its own over them."""
_ENV_START = 47
"""env_start in /proc/PID/stat, counted from the state behind the name (proc(5), field 50)."""


def placeholders() -> dict[str, str]:
    """Return the variables to start the server with."""
    return {name: "0" * digits for name, digits in PLACES.items()}


def main() -> None:
    """Serve until killed."""
    path, stand_in = sys.argv[1], "--stand-in" in sys.argv
    if stand_in:
        from replay.job import standin as backend
    else:
        from replay.job import training as backend

        backend.warm_up()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ends_with_server = with_parent(signal.SIGKILL)  # names its caller as the parent
    with socket.socket(socket.AF_UNIX) as listener:
        Path(path).unlink(missing_ok=True)
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                ends_with_server()
                _child(connection, backend)
            connection.close()


def _child(connection: socket.socket, backend: Any) -> None:
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        data, files, _, _ = socket.recv_fds(connection, 1 << 20, 2)
        request = json.loads(data)
        _become(request["environment"])
        os.chdir(request["folder"])
        os.dup2(files[0], 1)
        os.dup2(files[1], 2)
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        status = backend.train(json.loads(Path(request["job"]).read_text()), called_s=request["called_s"])
    except BaseException:  # noqa: BLE001 - written where the job's owner looks
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(OSError):
            connection.sendall(f"{status}\n".encode())
        os._exit(status)


def _end_with(client: socket.socket) -> None:
    """End this process as soon as its client is gone."""
    with contextlib.suppress(OSError):
        client.recv(1)
    os._exit(137)


def _become(environment: dict[str, str]) -> None:
    """Take a job's environment, in this process and in /proc/self/environ."""
    shown = Path("/proc/self/environ").read_bytes()
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_ENV_START])
    for name, digits in PLACES.items():
        at = shown.find(f"{name}=".encode())
        if start and at >= 0:
            value = environment.get(name, "0").zfill(digits).encode()
            ctypes.memmove(start + at + len(name) + 1, value, digits)
    os.environ.clear()
    os.environ.update(environment)


if __name__ == "__main__":
    main()
