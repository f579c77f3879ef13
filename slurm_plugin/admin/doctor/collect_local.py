"""What `rad doctor` asks of this machine alone: files, key, socket, units, programs."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

from slurm_plugin.admin.ask_radd import ask_radd
from slurm_plugin.admin.own_files.manifest import read_installed, why_left_alone
from slurm_plugin.core.comments.signed_comment import read_key
from slurm_plugin.core.errors import CommandError, ConfigError
from slurm_plugin.core.process.run import find_program, run

LUA_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu/lua",
    "/usr/lib/aarch64-linux-gnu/lua",
    "/usr/lib64/lua",
    "/usr/lib/lua",
    "/usr/local/lib/lua",
)

LUA_SOCKETS = ("socket/unix.so", "posix/sys/socket.so", "posix/sys/socket.lua", "posix.so")
"""Files of LuaSocket and of lua-posix below such a folder and Lua's version."""

UNITS = ("radd", "rad-monitor")
DAY_S = 86_400

COMMAND_S = 5.0


def text_of(path: str | None) -> str | None:
    """Return a script's text; None if there is none that can be read."""
    if not path:
        return None
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text


def joined(paths: Iterable[str]) -> str | None:
    """Return the texts of scripts that are started one after the other; None if none of them can be read."""
    texts = [text for path in paths if (text := text_of(path)) is not None]
    return "\n".join(texts) if texts else None


def texts_in(folder: Path) -> dict[str, str | None]:
    """Return the text of each file in a folder by its name, None where it cannot be read; none of no such folder."""
    try:
        return {name: text_of(str(folder / name)) for name in os.listdir(folder)}
    except OSError:
        return {}


def left_in(paths: Iterable[Path], manifest: Path) -> dict[str, str]:
    """Return why `rad install` would not renew a file, for each that it would leave alone, by its name.

    Args:
        paths: The files; one that is not there is left out.
        manifest: What was written (installed.py); where it cannot be read, nothing is said.
    """
    try:
        known = read_installed(manifest)
        found = {path: path.read_bytes() for path in paths if path.is_file()}
    except (OSError, ConfigError):
        return {}
    told = {path.name: why_left_alone(content, known.get(str(path))) for path, content in found.items()}
    return {name: why for name, why in told.items() if why is not None}


def lua_sockets() -> tuple[str, ...]:
    """Return the versions of Lua for which a library of sockets is here ("5.4")."""
    found = [
        version.name
        for folder in LUA_FOLDERS
        for version in sorted(Path(folder).glob("5.*"))
        if any((version / name).exists() for name in LUA_SOCKETS)
    ]
    return tuple(dict.fromkeys(found))


def key_error(path: Path, reader: str) -> str | None:
    """Return why the key cannot be used here by root and by the user that reads it; None if that cannot be seen.

    Args:
        path: The key.
        reader: The user.
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


def ping(path: str) -> tuple[str, int]:
    """Return how radd is, or why nobody knows, and how many submissions it missed, if any within the last day."""
    answer = ask_radd(path)
    if isinstance(answer, str):
        return answer, 0
    age_s, total = answer.get("undecided_age_s"), answer.get("undecided")
    missed = total if isinstance(age_s, int) and age_s < DAY_S and isinstance(total, int) else 0
    leaves = answer.get("leaves_jobs")
    return f"as it found when it started, {leaves}" if leaves else "ok", missed


def units() -> dict[str, str]:
    """Return the state of each of UNITS as systemd has it; nothing without systemd."""
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
