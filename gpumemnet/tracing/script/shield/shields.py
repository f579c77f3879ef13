"""Protect the user's files while a script is traced: two ways, and the first that works is used."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from gpumemnet.errors import TraceError
from gpumemnet.tracing.script.shield import apart, listened
from gpumemnet.tracing.script.shield.refusals import Refusals

NONE_HERE = (
    "nothing here can keep a script from overwriting files: neither a mount namespace nor a seccomp filter is "
    "allowed ({}); trace it on another machine, or give the text of its model"
)


class Shield(Protocol):
    """A way to protect files."""

    def begin(self) -> None:
        """Take effect on this process and its descendants; runs between fork and exec, and may only raise."""

    def started(self) -> None:
        """Do the parent's part, once the command runs."""

    def end(self) -> str:
        """End the parent's part, even if nothing was started; return the first refused file, or ""."""


class Copies:
    """Shield by copies: everything written is a copy that is removed with the trace."""

    def __init__(self, folder: str, home: str) -> None:
        self._folder, self._home = folder, home

    def begin(self) -> None:
        """Implement `Shield`."""
        apart.enter(self._folder, self._home)

    def started(self) -> None:
        """Implement `Shield`."""

    def end(self) -> str:
        """Implement `Shield`."""
        return ""


class Refusing:
    """Shield by refusal: changes of existing files are refused; new files stay."""

    def __init__(self, folder: str, home: str) -> None:
        self._refusals = Refusals(folder)
        self._mine, self._childs = socket.socketpair()
        self._listener: listened.Listener | None = None

    def begin(self) -> None:
        """Implement `Shield`."""
        listened.submit(self._childs)

    def started(self) -> None:
        """Implement `Shield`."""
        _, fds, _, _ = socket.recv_fds(self._mine, 1, 1)
        self._listener = listened.Listener(fds[0], self._refusals.allows)

    def end(self) -> str:
        """Implement `Shield`."""
        if self._listener is not None:
            self._listener.stop()
        for each in (self._mine, self._childs):
            each.close()
        return self._refusals.refused


Make = Callable[[str, str], Shield]
SHIELDS: tuple[Make, ...] = (Copies, Refusing)


def start(
    command: Sequence[str], shields: Sequence[Make], folder: str, *, bound: Callable[[], None], **how: Any
) -> tuple[subprocess.Popen[bytes], Shield]:
    """Start a command under the first shield that works.

    Args:
        command: Its words.
        shields: Shields to try, in this order.
        folder: The trace's folder.
        bound: Runs in the new process once the shield is active.
        **how: Further arguments of Popen, `env` among them.

    Raises:
        TraceError: No shield works.
        OSError: The command cannot be started.
    """
    why = []
    for make in shields:
        shield = make(folder, how["env"].get("HOME", ""))
        receiver, sender = socket.socketpair()

        def prepare(shield: Shield = shield, sender: socket.socket = sender) -> None:
            try:
                shield.begin()
            except BaseException as exc:
                with suppress(OSError):
                    sender.send(str(exc).encode(errors="replace")[:300] or b"?")
                raise
            bound()

        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=prepare, **how)
        except (subprocess.SubprocessError, OSError):
            shield.end()
            receiver.setblocking(False)
            with suppress(BlockingIOError):
                why.append(receiver.recv(300).decode(errors="replace"))
                continue
            raise
        except BaseException:  # a signal: the caller ends what was started
            shield.end()
            raise
        finally:
            receiver.close()
            sender.close()
        shield.started()
        return process, shield
    raise TraceError(NONE_HERE.format("; ".join(why)))
