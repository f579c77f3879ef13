"""Facts for `rad doctor` that need only this machine: files, key, socket, units, programs."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from slurm_plugin.admin.ask_radd import ask_radd
from slurm_plugin.admin.own_files.manifest import read_installed, why_left_alone
from slurm_plugin.core.comments.signed_comment import fingerprint, read_key
from slurm_plugin.core.errors import CommandError, ConfigError
from slurm_plugin.core.files.regular import opened
from slurm_plugin.core.process.run import find_program, run
from slurm_plugin.core.units import MIB

LUA_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu/lua",
    "/usr/lib/aarch64-linux-gnu/lua",
    "/usr/lib64/lua",
    "/usr/lib/lua",
    "/usr/local/lib/lua",
)

LUA_SOCKETS = ("socket/unix.so", "posix/sys/socket.so", "posix/sys/socket.lua", "posix.so")
"""Files of LuaSocket and of lua-posix, relative to such a folder and Lua's version."""

UNITS = ("radd", "rad-monitor")
DAY_S = 86_400
LEAST_BYTES = MIB

COMMAND_S = 5.0


class Radd(NamedTuple):
    """What radd says of itself.

    Attributes:
        state: "ok", or why it is of no use.
        undecided: How many submissions it missed within the last day, if any.
        key: Fingerprint of the key that it signs with; "" if unknown.
        settings: Its `in_use`; "" if unknown.
        slurm: Version of Slurm that it decides for; "" if unknown.
    """

    state: str | None = None
    undecided: int = 0
    key: str = ""
    settings: str = ""
    slurm: str = ""


def key_fingerprint(path: Path) -> str:
    """Return the fingerprint of the key here; "" if it cannot be read."""
    try:
        return fingerprint(read_key(path))
    except (ConfigError, OSError):
        return ""


def is_full(folder: Path) -> bool:
    """Return whether a folder's file system has no place for a further small file."""
    try:
        there = os.statvfs(folder)
    except OSError:
        return False
    return there.f_bavail * there.f_frsize < LEAST_BYTES or (there.f_files > 0 and there.f_favail == 0)


def is_closed_to(folder: Path, user: str) -> bool:
    """Return whether a user may not make files in a folder; False if one of both is unknown here.

    Args:
        folder: Any path.
        user: A user's name.
    """
    try:
        entry, there = pwd.getpwnam(user), folder.stat()
    except (KeyError, OSError):
        return False
    if entry.pw_uid in (0, there.st_uid):
        return False
    bit = stat.S_IWGRP if entry.pw_gid == there.st_gid else stat.S_IWOTH
    return not there.st_mode & bit


def text_of(path: str | None) -> str | None:
    """Return a script's text; None if it cannot be read."""
    if not path:
        return None
    try:
        with open(path, encoding="utf-8", errors="replace", opener=opened) as file:
            return file.read()
    except OSError:
        return None


def joined(paths: Iterable[str]) -> str | None:
    """Return the joined texts of scripts that are started in sequence; None if none can be read."""
    texts = [text for path in paths if (text := text_of(path)) is not None]
    return "\n".join(texts) if texts else None


def texts_in(folder: Path) -> dict[str, str | None]:
    """Return file name -> text for a folder, None for a file that cannot be read; empty without the folder."""
    try:
        return {name: text_of(str(folder / name)) for name in os.listdir(folder)}
    except OSError:
        return {}


def left_in(paths: Iterable[Path], manifest: Path) -> dict[str, str]:
    """Return, for each file that `rad install` would leave unchanged, the reason, by file name.

    Args:
        paths: The files; missing ones are skipped.
        manifest: The list of written files (installed.py); if it cannot be read, nothing is returned.
    """
    try:
        known = read_installed(manifest)
        found = {path: path.read_bytes() for path in paths if path.is_file()}
    except (OSError, ConfigError):
        return {}
    reasons = {path.name: why_left_alone(content, known.get(str(path))) for path, content in found.items()}
    return {name: why for name, why in reasons.items() if why is not None}


def lua_sockets() -> tuple[str, ...]:
    """Return the versions of Lua that have a socket library here ("5.4")."""
    found = [
        version.name
        for folder in LUA_FOLDERS
        for version in sorted(Path(folder).glob("5.*"))
        if any((version / name).exists() for name in LUA_SOCKETS)
    ]
    return tuple(dict.fromkeys(found))


def key_error(path: Path, reader: str) -> str | None:
    """Return why root or the reading user cannot use the key here; None if that cannot be determined.

    Args:
        path: The key.
        reader: The user that reads it.
    """
    if path.parent.exists() and not os.access(path.parent, os.X_OK):
        return None
    try:
        if path.exists() and not os.access(path, os.R_OK):
            return None
        read_key(path)
    except ConfigError as exc:
        return str(exc)
    try:
        if reader != "root" and path.stat().st_uid != pwd.getpwnam(reader).pw_uid:
            return f"{path}: radd, which runs as {reader}, cannot read it; run: chown {reader} {path}"
    except (OSError, KeyError):
        return None
    return ""


def ping(path: str) -> Radd:
    """Return what radd says of itself."""
    answer = ask_radd(path)
    if isinstance(answer, str):
        return Radd(answer)
    age_s, total = answer.get("undecided_age_s"), answer.get("undecided")
    missed = total if isinstance(age_s, int) and age_s < DAY_S and isinstance(total, int) else 0
    leaves = answer.get("leaves_jobs")
    state = f"as it found when it started, {leaves}" if leaves else "ok"
    key, settings, slurm = (str(answer.get(name, "")) for name in ("key", "settings", "slurm"))
    return Radd(state, missed, key, settings, slurm)


def units() -> dict[str, str]:
    """Return the systemd state of each of UNITS; empty without systemd."""
    found = {}
    for unit in UNITS:
        try:
            text = run(["systemctl", "show", "--property=LoadState,ActiveState", unit], timeout_s=COMMAND_S)
        except CommandError:
            return {}
        states = dict(line.partition("=")[::2] for line in text.splitlines())
        found[unit] = "missing" if states.get("LoadState") == "not-found" else states.get("ActiveState", "")
    return found


def program(name: str) -> str | None:
    """Return a program's path; None if it is not installed."""
    try:
        return find_program(name)
    except CommandError:
        return None
