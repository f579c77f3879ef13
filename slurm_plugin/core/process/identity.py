"""Identity of a process: a pid alone is reused, a pid with its start time is not."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from gpumemnet.records import frozen
from slurm_plugin.core.units import KIB

PROC = Path("/proc")
ROOT = 0
LONGEST = 256 * KIB
"""Read of one file in /proc: a user's process may have 6 MiB of environment, and its copies cost their user nothing."""

_NS_GET_PARENT, _NS_GET_OWNER_UID = 0xB702, 0xB704


def started_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it does not run.

    Args:
        pid: The process.
        proc: Where /proc is.

    Source: proc(5), /proc/PID/stat, fields 3 and 22; a zombie counts as ended, as it has released its memory.
    """
    try:
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, in seconds; 0 if it does not run.

    Source: proc(5), /proc/PID/stat, fields 14 and 15.
    """
    try:
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def owner_of(pid: int, proc: Path = PROC) -> int | None:
    """Return the user of a process, from the kernel; None if it does not run.

    Args:
        pid: The process.
        proc: Where /proc is.
    """
    with opened(pid, proc) as entry:
        return None if entry is None else entry.owner


@contextlib.contextmanager
def opened(pid: int, proc: Path = PROC) -> Iterator[ProcFolder | None]:
    """Keep the /proc folder of a process open; None if there is no such process.

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
        yield ProcFolder(folder)
    finally:
        os.close(folder)


class ProcFolder:
    """The /proc folder of a process, kept open: all that is read through it is of this one process.

    Once the process has ended nothing can be read any more, even if another has its pid by then (seen on Linux 6.18).
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes:
        """Return the content of one of its files, LONGEST bytes at most; nothing if that cannot be read."""
        try:
            file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            return b""
        try:
            found = b""
            while len(found) < LONGEST and (part := os.read(file, 1 << 16)):
                found += part
            return found
        except OSError:
            return b""
        finally:
            os.close(file)

    def executable(self) -> tuple[os.stat_result, str] | None:
        """Return its program file, and the kernel's path of that file; None if it is hidden.

        Links to the program and process titles, which users can choose, do not change these.
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
        """Return whether root itself runs it, and not a user through a setuid-root program.

        The effective user id proves nothing: a setuid-root program of a user has root's, and slurmstepd has that of the
        job's user while it opens files for the job.
        """
        ids = self.user_ids
        return bool(ids) and (ids[0], ids[2]) == (ROOT, ROOT)

    @property
    def owner(self) -> int | None:
        """Return its user: its real user id, or the user that created the user namespace that it is in.

        A user may have further ids in a namespace that it created (newuidmap(1)); processes there belong to that user.
        The owner of the folder is the effective user id: root, for a setuid-root program that a user runs.
        """
        ids = self.user_ids
        maker = self._namespace_maker() if ids else None
        return maker if maker is not None else next(iter(ids), None)

    def _namespace_maker(self) -> int | None:
        """Return the maker of its outermost user namespace below the current one (ioctl_ns(2)); None if in this one."""
        files: list[int] = []
        try:
            own = os.stat("/proc/self/ns/user")
            files.append(os.open("ns/user", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder))
            if os.path.samestat(os.fstat(files[-1]), own):
                return None
            while not os.path.samestat(os.fstat(above := fcntl.ioctl(files[-1], _NS_GET_PARENT)), own):
                files.append(above)
            files.insert(0, above)
            return int.from_bytes(fcntl.ioctl(files[-1], _NS_GET_OWNER_UID, bytes(4)), sys.byteorder)
        except OSError:  # it is in none that this process may inspect, or has ended
            return None
        finally:
            for file in files:
                os.close(file)

    @property
    def parent(self) -> int:
        """Return its parent's pid; 0 if it has no parent or has ended (proc(5), /proc/PID/stat, field 4)."""
        return self._number(1)

    @property
    def session(self) -> int:
        """Return its session; 0 if it has ended. It can begin a new one and join no other (setsid(2))."""
        return self._number(3)

    def _number(self, field: int) -> int:
        fields = self.read("stat").rpartition(b")")[2].split()
        return int(fields[field]) if len(fields) > field and fields[field].isdigit() else 0


@frozen
class Process:
    """A process to end later: its pid is valid only while the start time matches too."""

    pid: int
    started_ticks: int

    @classmethod
    def running(cls, pid: int, proc: Path = PROC) -> Process | None:
        """Return the process that has this pid now; None if none does.

        Args:
            pid: Pid of the process.
            proc: Where /proc is.
        """
        ticks = started_ticks(pid, proc)
        return None if ticks is None else cls(pid=pid, started_ticks=ticks)

    def runs(self, proc: Path = PROC) -> bool:
        """Return whether this process still runs."""
        return started_ticks(self.pid, proc) == self.started_ticks

    def kill(self) -> bool:
        """Send SIGKILL to exactly this process, never to another with its pid; return whether it still ran.

        The descriptor refers to one process (pidfd_open(2)); the start time is checked after it is open.
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
