"""The only place that starts other programs: an argument list, an absolute path, a time limit, never a shell."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.units import MIB

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Slurm starts its hooks without PATH, so programs are looked up here."""

SHOWN_LIMIT = 4 * MIB
"""Most bytes kept of the output of a program that failed. The output of a successful one is kept whole: a list of
8,000 waiting jobs is as long, and half a list is a wrong one."""


def find_program(name: str, *, folders: Sequence[str] = SYSTEM_PATH) -> str:
    """Return the absolute path of a program.

    Args:
        name: Name of the program; a path is used unchanged.
        folders: Where to look for it, in this order.

    Raises:
        CommandError: No folder has it; its package is not installed.
    """
    if os.path.isabs(name):
        return name
    for folder in folders:
        path = os.path.join(folder, name)
        # Path.is_file raises in a folder without read permission.
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise CommandError((name,), 127, f"{name} is in none of {', '.join(folders)}")


def has_program(name: str) -> bool:
    """Return whether a program is installed."""
    try:
        find_program(name)
    except CommandError:
        return False
    return True


KILLED_WAIT_S = 0.5
"""How long a killed program may take to end; one that hangs in a driver call stays, and is not waited for."""


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    with_errors: bool = False,
) -> str:
    """Run a program to its end and return what it wrote on stdout as text; bytes that are not UTF-8 are replaced.

    Args:
        argv: Program and arguments, as for `run_bytes`.
        timeout_s: After this long the program and its children are killed.
        env: Its whole environment; None means an empty one with PATH only.
        stdin: Text for its standard input; None means /dev/null.
        with_errors: Whether its stderr is returned too, interleaved.

    Raises:
        CommandError: It could not be started, exited non-zero or ran out of time.
    """
    stdout = run_bytes(argv, timeout_s=timeout_s, env=env, stdin=stdin, with_errors=with_errors)
    return stdout.decode(errors="replace")


def run_bytes(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    with_errors: bool = False,
) -> bytes:
    """Run a program to its end and return what it wrote on stdout.

    Args:
        argv: Program and arguments; a bare program name is looked up in SYSTEM_PATH. Surrogates are passed as the
            bytes that they stand for.
        timeout_s: After this long the program and its children are killed.
        env: Its whole environment; None means an empty one with PATH only.
        stdin: Text for its standard input; None means /dev/null.
        with_errors: Whether its stderr is returned too, interleaved.

    Raises:
        CommandError: It could not be started, exited non-zero or ran out of time.
    """
    command = (find_program(argv[0]), *argv[1:])
    environment = dict(env) if env is not None else {"PATH": ":".join(SYSTEM_PATH), "LC_ALL": "C.UTF-8"}
    try:
        process = subprocess.Popen(
            [word.encode(errors="surrogateescape") for word in command],
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if with_errors else subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as exc:
        raise CommandError(command, 127, str(exc)) from exc
    try:
        stdout, stderr = process.communicate(
            None if stdin is None else stdin.encode(errors="surrogateescape"), timeout=timeout_s
        )
    except subprocess.TimeoutExpired as exc:
        os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILLED_WAIT_S)
        raise CommandError(command, None, f"stopped after {timeout_s:g} s") from exc
    except BaseException:  # the caller's time is up: nothing waits for the program any more
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode != 0:
        raise CommandError(command, process.returncode, _text_of(stderr or stdout))
    return stdout


def _text_of(output: bytes) -> str:
    return output[-SHOWN_LIMIT:].decode(errors="replace")


def spawn_daemon(argv: Sequence[str], *, env: Mapping[str, str], log_path: Path, uid: int, gid: int) -> int:
    """Start a program that outlives its caller, in a separate session, and return its pid.

    Its output goes to a file: `nvidia-cuda-mps-control` hangs when its output is a pipe.

    Args:
        argv: The program and its arguments.
        env: All of its environment.
        log_path: File for its output; appended to.
        uid: User that it runs as.
        gid: Group that it runs as.

    Raises:
        CommandError: It could not be started.
    """
    command = (find_program(argv[0]), *argv[1:])
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(log_path, flags, 0o640), "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(env),
                start_new_session=True,
                user=uid,
                group=gid,
                extra_groups=[],
            )
    except OSError as exc:
        raise CommandError(command, 127, str(exc)) from exc
    # A hook has high priority while it runs; a daemon must not keep it.
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, 0)
    return process.pid
