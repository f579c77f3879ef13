"""radd's socket: one JSON line in, one out, within a time limit, whatever the peer does.

Only root and SlurmUser can connect: the socket's mode excludes all others (unix(7)), so that no user can delay
slurmctld by connecting repeatedly.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.errors import ConfigError, RadError
from slurm_plugin.core.text import one_line
from slurm_plugin.radd.protocol.lines import (
    DEADLINE_S,
    LONGEST_REFUSAL,
    encode,
    message_of,
    peer_uid,
    read_line,
)
from slurm_plugin.radd.protocol.own_files import own_file

log = logging.getLogger("radd")

THREADS = 8

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Takes a message and returns the reply. It may raise RadError."""

After = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
"""Takes a message and its reply once that is sent: work that slurmctld need not wait for."""


class Server:
    """The listening socket and its threads."""

    def __init__(
        self,
        path: Path,
        handler: Handler,
        *,
        trusted_uids: frozenset[int],
        clock: Clock,
        owner_uid: int | None = None,
        listener: socket.socket | None = None,
        after: After = lambda _message, _reply: None,
    ) -> None:
        """Prepare a socket.

        Args:
            path: Path of the socket.
            handler: Answers.
            trusted_uids: Users that are answered, even if the socket's mode changes.
            clock: Time.
            owner_uid: The user that slurmctld runs as, where radd is root; None keeps radd's user as the owner.
            listener: A socket that listens at `path` already. It belongs to its opener (a socket unit): its mode and
                owner stay, and it outlives this server, so that a client waits through a restart.
            after: Gets each reply after it was sent, or could not be: the log is on a disk, which may be slow.
        """
        self.path = path
        self._owner_uid = owner_uid
        self._handler, self._after = handler, after
        self._trusted_uids = trusted_uids
        self._clock = clock
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._listener = listener
        self._owned = listener is None
        self._wake: int | None = None
        self._lock_file: int | None = None

    def bind(self) -> None:
        """Take the socket for this radd. It accepts no connections before start().

        Raises:
            RadError: Another radd has the socket.
            ConfigError: Its folder cannot be written.
        """
        try:
            lock = own_file(self.path, "lock")
            lock.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._lock_file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise RadError(f"{self.path}: another radd is running; stop it first") from exc
        except OSError as exc:
            raise ConfigError(f"{self.path}: {exc.strerror}; {self._fix()}") from exc
        try:
            self._listener = self._listener or self._bound()
        except OSError as exc:
            raise ConfigError(f"{self.path}: {exc.strerror}; {self._fix()}") from exc

    def _fix(self) -> str:
        return f"start it by systemctl, or as root: install -d -o {os.geteuid()} {self.path.parent}"

    def start(self) -> None:
        """Listen and answer in the background.

        Raises:
            RadError: As claim(), which it calls if that was not done.
        """
        if self._lock_file is None:
            self.bind()
        assert self._listener is not None
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        for number in range(THREADS):
            thread = threading.Thread(
                target=self._serve, args=(self._listener, self._wake), name=f"radd-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def _bound(self) -> socket.socket:
        """Return a newly bound socket; a stale one is replaced, since the lock shows that no radd listens."""
        self.path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(str(self.path))
        finally:
            os.umask(before)
        if self._owner_uid is not None and os.geteuid() == 0:
            os.chown(self.path, self._owner_uid, -1)
        return listener

    def stop(self) -> None:
        """Stop listening, finish requests in progress, and remove the socket if radd made it. Safe to repeat."""
        self._stopping.set()
        wake, self._wake = self._wake, None
        if wake is not None:
            os.eventfd_write(wake, 1)  # stays readable, so every thread wakes
            for thread in self._threads:
                thread.join(timeout=2 * DEADLINE_S)
            os.close(wake)
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            if self._owned:
                self.path.unlink(missing_ok=True)
        lock_file, self._lock_file = self._lock_file, None
        if lock_file is not None:
            os.close(lock_file)

    def _serve(self, listener: socket.socket, wake: int) -> None:
        """Answer one connection after the other until `wake` can be read.

        accept() alone could be ended only by shutdown(), which would end a socket unit's listener for good. One thread
        wakes for each connection (EPOLLEXCLUSIVE), as with accept().
        """
        with select.epoll() as poll:
            poll.register(listener, select.EPOLLIN | select.EPOLLEXCLUSIVE)
            poll.register(wake, select.EPOLLIN)
            while not self._stopping.is_set():
                poll.poll()
                if self._stopping.is_set():
                    return
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:  # another thread was faster, or the client left
                    continue
                except OSError:  # the process ran out of descriptors for a moment
                    self._stopping.wait(0.05)
                    continue
                with connection:
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        try:
            if peer_uid(connection) in self._trusted_uids:
                self._exchange(connection)
        except OSError as exc:
            log.warning("request dropped: %s", exc)
        except Exception:  # dead threads would be noticed only when all are dead
            log.exception("internal error while answering; the job is submitted unchanged")

    def _exchange(self, connection: socket.socket) -> None:
        """Read a line and answer it; an error of one request must not look like a radd that is away."""
        deadline = Deadline(self._clock, DEADLINE_S)
        line, finish = self._answered(connection, deadline)
        try:
            connection.settimeout(max(deadline.remaining_s(), 0.001))
            connection.sendall(line)
        finally:
            finish()

    def _answered(self, connection: socket.socket, deadline: Deadline) -> tuple[bytes, Callable[[], None]]:
        """Return the reply's line, and what to log once it is sent."""
        try:
            message = message_of(read_line(connection, deadline))
            reply = self._handler(message)
            return encode(reply), partial(self._after, message, reply)
        except RadError as exc:
            why = one_line(str(exc), LONGEST_REFUSAL)  # it may quote what the peer sent
            return encode({"error": why}), partial(log.warning, "request refused: %s", why)
        except OSError:
            raise
        except Exception:
            log.exception("internal error while answering; the job is submitted unchanged")
            return encode({"error": "internal error; see radd's log"}), lambda: None
