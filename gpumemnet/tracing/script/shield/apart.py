"""A view of the file system for one command, in which everything written is a temporary copy.

It is a separate mount namespace, for an ordinary user inside a user namespace. Overlays cover the user's writable
folders, and all other places are read-only. So no program can change an existing file, and nothing that is written
stays, except in one scratch folder. Memory and queues that programs share by a key are separate, too. Sockets of other
programs cannot be reached through overlays; those of the system below /run and /var can.

`enter` runs between fork and exec, so it may only raise; the parent receives `ViewUnavailable`.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from gpumemnet.records import frozen

_NEWNS, _NEWUSER, _NEWIPC = 0x20000, 0x10000000, 0x8000000
_CAPBSET_DROP, _SYS_PTRACE, _SYS_ADMIN = 24, 19, 21
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_REMOUNT, _BIND, _REC, _PRIVATE = 32, 4096, 16384, 1 << 18
_FLAGS = {"nosuid": _NOSUID, "nodev": _NODEV, "noexec": _NOEXEC}
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded before a fork: nothing may be loaded between fork and exec
SYSTEM = frozenset(
    ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr", "var")
)
"""Folders in the root with programs and sockets of the system, read-only except for what is mounted in them."""
_NO_FILES = frozenset(
    (
        "autofs",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
    )
) | frozenset(("fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "securityfs", "sysfs", "tracefs"))
_MOST_OVERLAYS = 256
MEMORY_SIZE = "4g"
"""Limit on written bytes if no folder on a disk can hold the copies."""


class ViewUnavailable(Exception):
    """The view cannot be made here."""


@frozen
class Mount:
    """One line of /proc/self/mountinfo.

    Attributes:
        point: Mount point.
        kind: Type of file system.
        flags: Flags of the mount, as in mount(2).
    """

    point: str
    kind: str
    flags: int


def mounts_of(text: str) -> list[Mount]:
    """Return the mounts that a mountinfo file lists, in their order."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        words = left.split(" ")
        point = words[4]
        for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            point = point.replace(octal, char)
        flags = sum(_FLAGS.get(option, 0) for option in set(words[5].split(",")))
        found.append(Mount(point=point, kind=right.split(" ")[0], flags=flags))
    return found


def enter(scratch: str, home: str) -> None:
    """Make this process and its descendants write copies.

    Args:
        scratch: Absolute path of the only folder that is really written to. It also holds the copies.
        home: The user's home folder, or "".

    Raises:
        Unavailable: The kernel, a container or a mount does not allow it; the process must end.
    """
    try:
        _enter(scratch, home)
    except OSError as exc:
        raise ViewUnavailable(f"{exc.filename or 'mount namespace'}: {exc.strerror}") from exc


def _enter(scratch: str, home: str) -> None:
    cwd = _cwd()
    options = _own_namespace()
    _mount(None, "/", None, _REC | _PRIVATE)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = mounts_of(file.read())
    open_mounts = {mount: fd for mount in mounts if (fd := _hold(mount.point)) is not None}
    folder = os.open(scratch, os.O_PATH)
    bases = _bases(scratch)
    covers = {path: fd for path in _covers(mounts, cwd, home) if (fd := _hold(path)) is not None}
    covered = []
    for number, path in enumerate(sorted(covers)):
        in_memory = any(m.point == path and m.kind == "tmpfs" for m in mounts)
        for base in bases[in_memory:]:
            try:
                _overlay(path, covers[path], f"{base}/{number}", options)
                covered.append(path)
                break
            except OSError:
                continue  # impossible below itself or on this file system: then it stays read-only
    if cwd is not None and not any(_within(cwd, path) for path in covered):
        raise ViewUnavailable(f"{cwd}: no overlay can lie over it")
    _mount(f"/proc/self/fd/{folder}", scratch, None, _BIND)
    for mount, fd in open_mounts.items():
        if mount.point != "/proc":
            _read_only(mount, fd)
    for fd in {*open_mounts.values(), *covers.values(), folder}:
        os.close(fd)
    if cwd is not None:
        os.chdir(cwd)
    for capability in (_SYS_PTRACE, _SYS_ADMIN):  # root's ways out: another process's /proc/PID/root, umount
        _LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0)


def _cwd() -> str | None:
    """Return the working folder; None if it was removed, as nothing can be made there."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _own_namespace() -> str:
    """Enter a separate mount namespace; return the mount options that overlays need here."""
    if os.geteuid() == 0 and _LIBC.unshare(_NEWNS | _NEWIPC) == 0:
        return ""
    user, group = os.geteuid(), os.getegid()
    _checked(_LIBC.unshare(_NEWUSER | _NEWNS | _NEWIPC), "user namespace")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    return ",userxattr"


def _hold(path: str) -> int | None:
    """Open a path, so that it can be named once it is covered; None if this user cannot reach it."""
    try:
        return os.open(path, os.O_PATH | os.O_NOFOLLOW)
    except OSError:
        return None


def _bases(scratch: str) -> tuple[str, str]:
    """Return folders for copies: on disk, and in memory where the one on disk would lie below the folder it covers."""
    names = []
    for name in ("disk", "memory"):
        path = os.path.join(scratch, "copies", name)
        os.makedirs(path)
        if name == "memory":
            _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, f"size={MEMORY_SIZE},mode=0700")
        names.append(f"/proc/self/fd/{os.open(path, os.O_PATH)}")
    return names[0], names[1]


def _covers(mounts: Iterable[Mount], cwd: str | None, home: str) -> list[str]:
    """Return the folders to cover with overlays: those without mounts below, else each folder in them."""
    points = {mount.point for mount in mounts}
    kinds = {mount.point: mount.kind for mount in mounts}
    starts = [f"/{name}" for name in os.listdir("/") if name not in SYSTEM]
    starts += [point for point, kind in kinds.items() if point != "/" and kind not in _NO_FILES]
    found: list[str] = []
    while starts:
        path = starts.pop()
        if os.path.islink(path) or not os.path.isdir(path) or path in found:
            continue
        if not any(_within(point, path) and point != path for point in points):
            found.append(path)
            continue
        try:
            starts += [each.path for each in os.scandir(path) if each.path not in points]
        except OSError:
            continue  # belongs to another user
    places = [os.path.realpath(path) for path in ("/var/tmp", home, cwd) if path]
    for path in places:
        below = any(_within(point, path) and point != path for point in points)
        if os.path.isdir(path) and not below and not _has_owner(path, found):
            found.append(path)
    found.sort(key=lambda path: not any(_within(place, path) for place in places))
    return found[:_MOST_OVERLAYS]


def _has_owner(path: str, covers: Iterable[str]) -> bool:
    """Return whether an overlay above can copy a folder: only its owner or root can copy it."""
    mine = os.geteuid() in (0, os.stat(path).st_uid)
    return any(path == each or (mine and _within(path, each)) for each in covers)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _overlay(path: str, lower: int, copies: str, options: str) -> None:
    there = os.fstat(lower)
    for name in ("", "/upper", "/work"):
        os.mkdir(copies + name, 0o700)
    if options == "":
        os.chown(f"{copies}/upper", there.st_uid, there.st_gid)
    elif there.st_gid in os.getgroups():
        os.chown(f"{copies}/upper", -1, there.st_gid)
    os.chmod(f"{copies}/upper", stat.S_IMODE(there.st_mode))
    layers = f"lowerdir=/proc/self/fd/{lower},upperdir={copies}/upper,workdir={copies}/work"
    _mount("overlay", path, "overlay", _NOSUID if options else 0, layers + options)


def _read_only(mount: Mount, fd: int) -> None:
    """Make a mount read-only where it can be reached; one below another mount cannot be."""
    try:
        _mount(None, f"/proc/self/fd/{fd}", None, _REMOUNT | _BIND | _RDONLY | mount.flags)
    except OSError:
        if os.fstat(fd).st_dev == os.stat("/").st_dev:
            raise


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    _checked(_LIBC.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), target)


def _checked(status: int, name: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
