"""rad.toml, or the last valid copy of it: an admin's mistake must not remove the limits of running jobs.

A program that reads a valid rad.toml as root, or as SlurmUser, keeps a copy in /var/lib/rad, or next to a rad.toml that
is not at its usual place. The copy is trusted only if it is complete and only root and the reader can have written it.
It is used if rad.toml is missing, invalid, not a file, truncated, or on a file server that does not answer.
"""

from __future__ import annotations

import os
import stat
import zlib
from contextlib import suppress
from pathlib import Path

from gpumemnet.records import frozen
from slurm_plugin.core.config.load import DEFAULT_PATH, Config, parse_text
from slurm_plugin.core.config.text import LONGEST
from slurm_plugin.core.config.timed_read import TimelyFile
from slurm_plugin.core.errors import ConfigError

COPIES = Path("/var/lib/rad")
"""Folder for copies of the rad.toml at its usual place; on a disk of this machine."""


@frozen
class InForce:
    """The configuration in force.

    Attributes:
        config: The configuration.
        trouble: Why the last good copy is used instead of rad.toml; "" if rad.toml is used.
    """

    config: Config
    trouble: str = ""


def copy_of(path: Path) -> Path:
    """Return where the last good copy of a rad.toml is kept."""
    return COPIES / "rad.toml.good" if path == DEFAULT_PATH else path.with_name(path.name + ".good")


def config_in_force(rad_toml: Path | TimelyFile) -> InForce:
    """Read rad.toml, and keep a copy of it if it is valid; otherwise use the last good copy.

    Args:
        rad_toml: Its path, or the file that is being read already.

    Raises:
        ConfigError: rad.toml cannot be used, and there never was a good one here.
    """
    file = rad_toml if isinstance(rad_toml, TimelyFile) else TimelyFile(str(rad_toml))
    path = Path(file.path)
    copy = _read_copy(path)  # meanwhile
    found, text = _found(file, copy)
    if text not in (None, copy):
        _keep(copy_of(path), text)
    return found


def config_to_show(path: Path) -> InForce:
    """Return the configuration in force on this machine, for a program that only shows: nothing is kept.

    Args:
        path: Path of rad.toml.

    Raises:
        ConfigError: rad.toml cannot be used, and no daemon here kept a good one.
    """
    return _found(TimelyFile(str(path)), _read_copy(path, of_any_user=True))[0]


def acceptable(path: Path) -> Config:
    """Return the configuration of a rad.toml that a daemon here would take over; nothing is kept.

    Args:
        path: Path of rad.toml.

    Raises:
        ConfigError: A daemon would refuse it, whichever user it runs as.
    """
    return _accepted(TimelyFile(str(path)), _read_copy(path, of_any_user=True))[1]


def copied_at_s(path: Path) -> float | None:
    """Return when the copy of a rad.toml was made, seconds since the epoch; None if there is no usable one."""
    copy = _read_copy(path)
    usable = copy is not None and _parse_copy(path, copy) is not None
    return copy_of(path).stat().st_mtime if usable else None


def _found(file: TimelyFile, copy: str | None) -> tuple[InForce, str | None]:
    """Return the configuration in force, and the text of rad.toml if that is it.

    Args:
        file: rad.toml.
        copy: Text of the last good copy, if there is one.

    Raises:
        ConfigError: Neither can be used.
    """
    path = Path(file.path)
    try:
        text, config = _accepted(file, copy)
    except ConfigError as exc:
        last_good = None if copy is None else _parse_copy(path, copy)
        if last_good is None:
            raise ConfigError(f"{exc}; and there is no last good copy at {copy_of(path)}") from exc
        return InForce(config=last_good, trouble=f"{exc}; the last good copy is in force"), None
    return InForce(config=config), text


def _accepted(file: TimelyFile, copy: str | None) -> tuple[str, Config]:
    """Return text and configuration of a rad.toml.

    Args:
        file: The file.
        copy: Text of the last good copy, if there is one.

    Raises:
        ConfigError: It is invalid, or only the remains of a file.
    """
    text, path = file.text(), Path(file.path)
    config = parse_text(text, origin=file.path)
    if copy is not None and text != copy:
        _refuse_remains(path, text, config, copy)
    return text, config


def _refuse_remains(path: Path, text: str, config: Config, copy: str) -> None:
    """Refuse a text that is valid TOML but only the remains of a file after a full disk or during an edit.

    Raises:
        ConfigError: It is such a text.
    """
    before = _parse_copy(path, copy)
    if before is None:
        return
    if before.partitions and not config.partitions and config.mode != "off":
        raise ConfigError(f'{path}: names no partition any more; if that is intended, set mode = "off"')
    if copy.startswith(text) and not text.endswith("\n"):
        line = text.count("\n") + 1
        raise ConfigError(
            f"{path}:{line}: the file ends in the middle of a line; complete it, or end the line"
        )


def _read_copy(path: Path, *, of_any_user: bool = False) -> str | None:
    """Return the text of the last good copy; None if there is none that can be trusted.

    Args:
        path: Path of rad.toml.
        of_any_user: Whether another user's copy counts, too: radd's, which SlurmUser owns.
    """
    place = copy_of(path)
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        own = (of_any_user or found.st_uid in (0, os.geteuid())) and not stat.S_IMODE(found.st_mode) & 0o022
        if not stat.S_ISREG(found.st_mode) or not own:
            return None
        head, _, content = file.read(LONGEST + 100).partition(b"\n")
    if head != _head(content):
        return None
    with suppress(UnicodeDecodeError):
        return content.decode()
    return None


def _parse_copy(path: Path, text: str) -> Config | None:
    """Return the configuration of a copy; None if this version cannot read it."""
    with suppress(ConfigError):
        return parse_text(text, origin=str(copy_of(path)), strict=False)
    return None


def _keep(place: Path, text: str) -> None:
    """Replace the copy as a whole; if it cannot be written, the older one stays, and rad doctor reports it."""
    content = text.encode()
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    with suppress(OSError):
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(draft, flags, 0o644)
            with os.fdopen(handle, "wb") as file:
                file.write(_head(content) + b"\n" + content)
                os.fchmod(handle, 0o644)
            draft.replace(place)
        except OSError:
            draft.unlink(missing_ok=True)


def _head(content: bytes) -> bytes:
    return f"# The last good rad.toml, kept by RAD; crc {zlib.crc32(content):08x}".encode()
