"""The text of rad.toml: read without waiting for a FIFO, and UTF-8."""

from __future__ import annotations

from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.files.regular import opened

LONGEST = 1 << 20
"""Bytes beyond this are not read."""


def read_bytes(path: str) -> bytes:
    """Return the content of rad.toml.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        with open(path, "rb", opener=opened) as file:
            return file.read(LONGEST)
    except FileNotFoundError as exc:
        raise ConfigError(f"{path}: {exc.strerror}; run: rad install") from exc
    except PermissionError as exc:
        raise ConfigError(f"{path}: {exc.strerror}; run this as root, or: chmod 644 {path}") from exc
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror or exc}; name a text file") from exc


def decoded(content: bytes, path: str) -> str:
    """Return the text of rad.toml.

    Args:
        content: Its bytes.
        path: Its path.

    Raises:
        ConfigError: It is no UTF-8.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8; save the file as UTF-8 text") from exc
