"""Judge each system call that changes the file system before the kernel runs it, by seccomp notifications.

With a filter on the command and its descendants, the kernel asks this process about each call that may write; a thread
answers. Needs no privileges, and Linux 5.5 on x86-64 or ARM. Calls that the filter does not know are refused: other
instruction sets, openat2, io_uring and some of Linux 6.13 and later (programs use older calls instead), memory and
queues that programs share by a key. Writes to an open file are not checked: the file was judged when opened.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import platform
import re
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence

from gpumemnet.tracing.script.shield.refusals import WRITES, ChangingCall

_LIBC = ctypes.CDLL(None, use_errno=True)
_NO_NEW_PRIVS, _SET_FILTER, _NEW_LISTENER = 38, 1, 8
_ALLOW, _ASK, _NO_CALL = 0x7FFF0000, 0x7FC00000, 0x00050000 | errno.ENOSYS
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTICE, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_CONTINUE = 1
_FDCWD, _PATH_MAX = -100, 4096
_POLL_MS = 200
_NO_FOLLOW = 0x100

# Per call: the change, and the positions of folder, path, flags, second folder and second path.
_AT = {
    "openat": ("open", 0, 1, 2, None, None),
    "mkdirat": ("make", 0, 1, None, None, None),
    "mknodat": ("make", 0, 1, None, None, None),
    "symlinkat": ("make", 1, 2, None, None, None),
    "unlinkat": ("remove", 0, 1, None, None, None),
    "renameat": ("rename", 0, 1, None, 2, 3),
    "renameat2": ("rename", 0, 1, None, 2, 3),
    "linkat": ("link", 0, 1, None, 2, 3),
    "truncate": ("mark", None, 0, None, None, None),
    "fchmodat": ("mark", 0, 1, None, None, None),
    "fchmodat2": ("mark", 0, 1, 3, None, None),
    "fchownat": ("mark", 0, 1, 4, None, None),
    "utimensat": ("mark", 0, 1, 3, None, None),
    "setxattr": ("mark", None, 0, None, None, None),
    "lsetxattr": ("mark of link", None, 0, None, None, None),
    "removexattr": ("mark", None, 0, None, None, None),
    "lremovexattr": ("mark of link", None, 0, None, None, None),
    "fchmod": ("mark", 0, None, None, None, None),
    "fchown": ("mark", 0, None, None, None, None),
    "fsetxattr": ("mark", 0, None, None, None, None),
    "fremovexattr": ("mark", 0, None, None, None, None),
}
_OLD = {
    "open": ("open", None, 0, 1, None, None),
    "creat": ("open", None, 0, None, None, None),
    "mkdir": ("make", None, 0, None, None, None),
    "mknod": ("make", None, 0, None, None, None),
    "symlink": ("make", None, 1, None, None, None),
    "unlink": ("remove", None, 0, None, None, None),
    "rmdir": ("remove", None, 0, None, None, None),
    "rename": ("rename", None, 0, None, None, 1),
    "link": ("link", None, 0, None, None, 1),
    "chmod": ("mark", None, 0, None, None, None),
    "chown": ("mark", None, 0, None, None, None),
    "lchown": ("mark of link", None, 0, None, None, None),
    "utime": ("mark", None, 0, None, None, None),
    "utimes": ("mark", None, 0, None, None, None),
    "futimesat": ("mark", 0, 1, None, None, None),
}
_CALLS = {**_AT, **_OLD}
_OF_PROCESS = re.compile(r"/+(?:proc/+(?:thread-)?self/+|dev/+(fd/+|stdin$|stdout$|stderr$))")
"""How a path begins that names another file in each process; what is open there may be open for reading only."""
_STREAMS = {"stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", None: ""}
_SAME = {
    "openat2": 437, "io_uring_setup": 425, "fchmodat2": 452,
    "setxattrat": 463, "removexattrat": 466, "file_setattr": 469,
}  # fmt: skip
_X86 = {
    "open": 2, "creat": 85, "openat": 257, "truncate": 76, "rename": 82, "renameat": 264, "renameat2": 316,
    "unlink": 87, "unlinkat": 263, "rmdir": 84, "symlink": 88, "symlinkat": 266, "mkdir": 83, "mkdirat": 258,
    "mknod": 133, "mknodat": 259, "chmod": 90, "fchmod": 91, "fchmodat": 268, "chown": 92, "fchown": 93,
    "lchown": 94, "fchownat": 260, "link": 86, "linkat": 265, "lsetxattr": 189, "lremovexattr": 198,
    "utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280, "setxattr": 188,
    "fsetxattr": 190, "removexattr": 197, "fremovexattr": 199,
    "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "mq_unlink": 241,
}  # fmt: skip
_ARM = {
    "openat": 56, "truncate": 45, "renameat": 38, "renameat2": 276, "unlinkat": 35, "symlinkat": 36, "mkdirat": 34,
    "mknodat": 33, "fchmodat": 53, "fchmod": 52, "fchownat": 54, "fchown": 55, "utimensat": 88, "setxattr": 5,
    "fsetxattr": 7, "removexattr": 14, "fremovexattr": 16, "linkat": 37,
    "lsetxattr": 6, "lremovexattr": 15,
    "shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180, "mq_unlink": 181,
}  # fmt: skip
_MACHINES = {"x86_64": (0xC000003E, 317, _X86), "aarch64": (0xC00000B7, 277, _ARM)}


class FilterUnavailable(Exception):
    """The kernel or a container does not allow such a filter."""


def submit(channel: socket.socket) -> None:
    """Install the filter in this process and its descendants; runs between fork and exec.

    Args:
        channel: Receives the descriptor for the kernel's notifications.

    Raises:
        Unavailable: The filter cannot be installed; nothing was changed.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise FilterUnavailable(f"no filter for {platform.machine()}")
    program = _program(machine[0], machine[2])
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    fd = _LIBC.syscall(machine[1], _SET_FILTER, _NEW_LISTENER, head)
    if fd < 0:
        raise FilterUnavailable(f"seccomp: {os.strerror(ctypes.get_errno())}")
    channel.sendmsg([b"1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    os.close(fd)


def _program(architecture: int, numbers: dict[str, int]) -> bytes:
    """Return the filter program: which calls are checked, and which fail as unknown."""

    def line(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, k)

    load, equal, atleast, has, leave = 0x20, 0x15, 0x35, 0x45, 0x06
    lines = [line(load, 4), line(equal, architecture, 1), line(leave, _NO_CALL), line(load, 0)]
    if architecture == _MACHINES["x86_64"][0]:
        lines += [line(atleast, 0x40000000, 0, 1), line(leave, _NO_CALL)]
    numbers = {**_SAME, **numbers}
    for name, number in numbers.items():
        if name not in _CALLS:
            lines += [line(equal, number, 0, 1), line(leave, _NO_CALL)]
            continue
        flags = _CALLS[name][3]
        if name not in ("open", "openat") or flags is None:
            lines += [line(equal, number, 0, 1), line(leave, _ASK)]
            continue
        lines += [line(equal, number, 0, 4), line(load, 16 + 8 * flags)]
        lines += [line(has, WRITES | os.O_CREAT, 0, 1), line(leave, _ASK), line(leave, _ALLOW)]
    return b"".join([*lines, line(leave, _ALLOW)])


class Listener:
    """Thread that answers the kernel's notifications.

    Args:
        fd: Descriptor of the notifications.
        allows: Judges a change.
    """

    def __init__(self, fd: int, allows: Callable[[ChangingCall], bool]) -> None:
        self._fd, self._allows = fd, allows
        self._names = {number: name for name, number in {**_SAME, **_MACHINES[platform.machine()][2]}.items()}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop; the kernel refuses all later calls."""
        self._ends.set()
        self._thread.join()
        os.close(self._fd)

    def _answer(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while not self._ends.is_set():
            if not any(event & select.POLLIN for _, event in poll.poll(_POLL_MS)):
                continue
            notice = bytearray(_NOTICE.size)
            try:
                fcntl.ioctl(self._fd, _RECEIVE, notice)
                number, pid, _, call, _, _, *arguments = _NOTICE.unpack(notice)
                allowed = self._judged(pid, self._names.get(call, ""), arguments)
                answer = (number, 0, 0, _CONTINUE) if allowed else (number, 0, -errno.EACCES, 0)
                fcntl.ioctl(self._fd, _SEND, bytearray(_ANSWER.pack(*answer)))
            except OSError:
                continue  # the process ended, or a signal interrupted the call

    def _judged(self, pid: int, name: str, arguments: Sequence[int]) -> bool:
        try:
            return self._allows(change_of(pid, name, arguments))
        except (OSError, KeyError, ValueError):
            return False  # unreadable: its effect is unknown


def change_of(pid: int, name: str, arguments: Sequence[int]) -> ChangingCall:
    """Return the change that a call would make.

    Args:
        pid: Id of the calling thread.
        name: Name of the call.
        arguments: Its six arguments.

    Raises:
        OSError: The thread's memory or folders cannot be read.
    """
    does, folder, path, flags, folder_to, path_to = _CALLS[name]
    where = _path(pid, arguments, folder, path)
    given = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if name == "creat" else 0
    given = given if flags is None else arguments[flags] & 0xFFFFFFFF
    follows = does == "mark"
    if does == "open":
        follows = not given & (os.O_NOFOLLOW | os.O_EXCL)
    elif follows:
        follows, given = not given & _NO_FOLLOW, 0
    to = "" if path_to is None else _path(pid, arguments, folder_to, path_to)
    return ChangingCall(does=does, path=where, to=to, flags=given if does == "open" else 0, follows=follows)


def _path(pid: int, arguments: Sequence[int], folder: int | None, path: int | None) -> str:
    """Return an argument's absolute path, relative to another argument's folder or the working folder."""
    text = "" if path is None or not arguments[path] else _text(pid, arguments[path])
    if text.startswith("/"):
        own = _OF_PROCESS.match(text)
        return text if own is None else f"/proc/{pid}/{_STREAMS.get(own[1], 'fd/')}{text[own.end() :]}"
    at = _FDCWD if folder is None else ctypes.c_int32(arguments[folder] & 0xFFFFFFFF).value
    base = os.readlink(f"/proc/{pid}/cwd" if at == _FDCWD else f"/proc/{pid}/fd/{at}")
    return os.path.join(base, text) if text else base


def _text(pid: int, address: int) -> str:
    """Return the zero-terminated string at an address of a process."""
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        read = b""
        while b"\0" not in read and len(read) < _PATH_MAX:
            at = address + len(read)
            read += os.pread(memory, _PATH_MAX - at % _PATH_MAX, at)
        return os.fsdecode(read[: read.index(b"\0")])
    finally:
        os.close(memory)
