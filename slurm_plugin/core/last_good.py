"""rad.toml, or the last copy of it that was good: a slip of an admin's hand must not uncap the jobs that run.

Whoever reads a good rad.toml as root, or as SlurmUser, keeps a copy of it in /var/lib/rad, or beside a rad.toml that is
not at its usual place. The copy is believed only if nobody but root and the reader can have written it, and if it is
whole. It is taken where rad.toml is missing, wrong, no file, cut short, or on a file server that does not answer.
"""

from __future__ import annotations

import os
import stat
import tomllib
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.child import ChildError, in_child
from slurm_plugin.core.config import DEFAULT_PATH, Config, parse_config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.units import MIB

COPIES = Path("/var/lib/rad")
"""Of the rad.toml at its usual place; on a disk of this machine."""

READ_S = 1.0
"""For reading a small file, on a machine that may be busy."""

_LONGEST = MIB
_READABLE, _FAILED = b"+", b"-"


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """The configuration to go by.

    Attributes:
        config: The configuration.
        trouble: Why it is not rad.toml's but the last good copy's; "" if it is rad.toml's.
    """

    config: Config
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    text: str
    config: Config


def copy_of(path: Path) -> Path:
    """Return where the last good copy of a rad.toml is kept."""
    return COPIES / "rad.toml.good" if path == DEFAULT_PATH else path.with_name(path.name + ".good")


def config_in_force(path: Path) -> InForce:
    """Read rad.toml, and keep a copy of it if it is good; else take the last good copy.

    Raises:
        ConfigError: rad.toml cannot be used, and there never was a good one here.
    """
    copy = _read_copy(path)
    try:
        text = _read(path)
        config = parse_text(text, origin=str(path))
        if copy is not None:
            _refuse_remains(path, text, config, copy)
    except ConfigError as exc:
        if copy is None:
            raise ConfigError(f"{exc}; and there is no last good copy at {copy_of(path)}") from exc
        return InForce(config=copy.config, trouble=f"{exc}; the last good copy is in force")
    if copy is None or copy.text != text:
        _keep(copy_of(path), text)
    return InForce(config=config)


def parse_text(text: str, *, origin: str, strict: bool = True) -> Config:
    """Return the configuration that a text describes.

    Args:
        text: The text of a rad.toml.
        origin: File name for messages.
        strict: Whether an unknown key is an error.

    Raises:
        ConfigError: It is no TOML, or a key or value is wrong.
    """
    try:
        return parse_config(tomllib.loads(text), origin=origin, strict=strict)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise ConfigError(f"{origin}: {exc}") from exc


def copied_at_s(path: Path) -> float | None:
    """Return when the copy of a rad.toml was kept, seconds since the epoch; None if there is none to go by."""
    return copy_of(path).stat().st_mtime if _read_copy(path) is not None else None


def _read(path: Path) -> str:
    """Return a file's text; a file server that hangs costs READ_S.

    Raises:
        ConfigError: It cannot be read.
    """

    def task() -> bytes:
        try:
            with path.open("rb") as file:
                return _READABLE + file.read(_LONGEST)
        except OSError as exc:
            return _FAILED + (exc.strerror or str(exc)).encode()

    try:
        answer = in_child(task, timeout_s=READ_S)
    except ChildError as exc:
        raise ConfigError(f"{path}: cannot be read: {exc}") from exc
    if answer.startswith(_FAILED):
        raise ConfigError(f"{path}: {answer[1:].decode()}; run: rad install")
    try:
        return answer[1:].decode()
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: {exc}") from exc


def _refuse_remains(path: Path, text: str, config: Config, copy: _Copy) -> None:
    """Refuse what is valid TOML, and yet what a full disk or an editor at work leaves of a file.

    Raises:
        ConfigError: It is.
    """
    if copy.config.partitions and not config.partitions and config.mode != "off":
        raise ConfigError(f'{path}: names no partition any more; if that is meant, say mode = "off"')
    if text != copy.text and copy.text.startswith(text) and not text.endswith("\n"):
        raise ConfigError(f"{path}: ends in the middle of a line")


def _read_copy(path: Path) -> _Copy | None:
    """Return the last good copy; None if there is none that can be believed, or this version cannot read it."""
    place = copy_of(path)
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        own = found.st_uid in (0, os.geteuid()) and not stat.S_IMODE(found.st_mode) & 0o022
        if not stat.S_ISREG(found.st_mode) or not own:
            return None
        head, _, content = file.read(_LONGEST + 100).partition(b"\n")
    if head != _head(content):
        return None
    try:
        text = content.decode()
        return _Copy(text=text, config=parse_text(text, origin=str(place), strict=False))
    except (ConfigError, UnicodeDecodeError):
        return None


def _keep(place: Path, text: str) -> None:
    """Replace the copy whole; where it cannot be written, the older one stays, and rad doctor says so."""
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
