"""Who a process is: a pid alone is reused, a pid with its start time is not."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
ROOT = 0

_NS_GET_PARENT, _NS_GET_OWNER_UID = 0xB702, 0xB704


def started_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it does not run.

    Args:
        pid: The process.
        proc: Where /proc is.

    Source: proc(5), /proc/PID/stat, fields 3 and 22; a zombie has given back its memory.
    """
    try:
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def owner_of(pid: int, proc: Path = PROC) -> int | None:
    """Return the user that a process belongs to, as the kernel knows it; None if it does not run.

    Args:
        pid: The process.
        proc: Where /proc is.
    """
    with opened(pid, proc) as entry:
        return None if entry is None else entry.owner


@contextlib.contextmanager
def opened(pid: int, proc: Path = PROC) -> Iterator[Entry | None]:
    """Hold a process' folder in /proc open; None if there is no such process.

    Args:
        pid: The process.
        proc: Where /proc is.
    """
    try:
        folder = os.open(proc / str(pid), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield Entry(folder)
    finally:
        os.close(folder)


class Entry:
    """A process' folder in /proc, held open: all that is read through it is of this one process.

    Once the process has ended nothing can be read any more, though another has its pid by then (seen on Linux 6.18).
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes:
        """Return what one of its files holds; nothing if that cannot be read."""
        try:
            file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            return b""
        try:
            return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
        except OSError:
            return b""
        finally:
            os.close(file)

    def executable(self) -> tuple[os.stat_result, str] | None:
        """Return the program that it runs, and the path by which the kernel knows that; None if it is hidden.

        Neither a link to it nor a title, both of which its user chooses, changes any of these.
        """
        try:
            return os.stat("exe", dir_fd=self._folder), os.readlink("exe", dir_fd=self._folder)
        except OSError:
            return None

    @property
    def user_ids(self) -> tuple[int, ...]:
        """Return its real, effective, saved and file system user id; nothing if it has ended."""
        found = re.search(rb"^Uid:((?:\s+\d+){4})$", self.read("status"), re.MULTILINE)
        return tuple(map(int, found[1].split())) if found else ()

    @property
    def is_roots(self) -> bool:
        """Return whether root itself runs it, and no setuid-root program of a user's.

        The effective user id says nothing: a user's setuid-root program has root's, and slurmstepd its job's owner's
        while it opens files for that.
        """
        ids = self.user_ids
        return bool(ids) and (ids[0], ids[2]) == (ROOT, ROOT)

    @property
    def owner(self) -> int | None:
        """Return the user that it belongs to: its real user id, or whoever made the user namespace that it is in.

        A user may have ids of more than his own in a namespace of his (newuidmap(1)); what runs there is his. The
        owner of the folder is the effective user id: root, for a setuid-root program of a user's.
        """
        ids = self.user_ids
        maker = self._namespace_maker() if ids else None
        return maker if maker is not None else next(iter(ids), None)

    def _namespace_maker(self) -> int | None:
        """Return who made the outermost user namespace below our own that it is in (ioctl_ns(2)); None if in ours."""
        held: list[int] = []
        try:
            ours = os.stat("/proc/self/ns/user")
            held.append(os.open("ns/user", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder))
            if os.path.samestat(os.fstat(held[-1]), ours):
                return None
            while not os.path.samestat(os.fstat(above := fcntl.ioctl(held[-1], _NS_GET_PARENT)), ours):
                held.append(above)
            held.insert(0, above)
            return int.from_bytes(fcntl.ioctl(held[-1], _NS_GET_OWNER_UID, bytes(4)), sys.byteorder)
        except OSError:  # it is in none of those that we may look into, or has ended
            return None
        finally:
            for file in held:
                os.close(file)

    @property
    def parent(self) -> int:
        """Return its parent's pid; 0 if it has none, or has ended (proc(5), /proc/PID/stat, field 4)."""
        return self._number(1)

    @property
    def session(self) -> int:
        """Return its session; 0 if it has ended. It can begin a new one and join no other (setsid(2))."""
        return self._number(3)

    def _number(self, field: int) -> int:
        fields = self.read("stat").rpartition(b")")[2].split()
        return int(fields[field]) if len(fields) > field and fields[field].isdigit() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that we may end later: its pid is ours only while the start time fits too."""

    pid: int
    started_ticks: int

    @classmethod
    def running(cls, pid: int, proc: Path = PROC) -> Process | None:
        """Return the process that has this pid now; None if none does.

        Args:
            pid: Of the process.
            proc: Where /proc is.
        """
        ticks = started_ticks(pid, proc)
        return None if ticks is None else cls(pid=pid, started_ticks=ticks)

    def runs(self, proc: Path = PROC) -> bool:
        """Return whether it is still this very process."""
        return started_ticks(self.pid, proc) == self.started_ticks

    def kill(self) -> bool:
        """Send SIGKILL to this very process, never to another that has its pid by now; return whether it was there.

        The descriptor holds on to one process (pidfd_open(2)); its start time is looked at after it is open.
        """
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if not self.runs():
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
        finally:
            os.close(handle)
