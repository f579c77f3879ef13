"""The list of files that `rad install` wrote on this machine, for a later install or `rad uninstall`.

One line per file in the form of sha256sum(1), so `sha256sum -c /etc/rad/installed.sha256` shows later changes.
A file may have two lines: releases before 1.2 left both, old and new, after an interrupted install.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

from slurm_plugin.core.errors import ConfigError

NAME = "installed.sha256"


def digest(content: bytes) -> str:
    """Return the digest of a content."""
    return hashlib.sha256(content).hexdigest()


def read_installed(path: Path) -> dict[str, frozenset[str]]:
    """Return path -> digests of all that was written; empty if nothing was, or by a release without a list.

    Raises:
        ConfigError: The list cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: {exc}; run as root") from exc
    installed: dict[str, frozenset[str]] = {}
    for found, _, name in (line.partition("  ") for line in lines):
        if name:
            installed[name] = installed.get(name, frozenset()) | {found}
    return installed


def why_left_alone(content: bytes, known: Collection[str] | None) -> str | None:
    """Return why `rad install` does not renew a file that differs from what it would write; None if it does.

    Args:
        content: Content of the file.
        known: The digests of what was written there, from the list; None if nothing was.
    """
    if known is None:
        return "rad install did not write it"
    return None if digest(content) in known else "it was changed since rad install wrote it"


def list_of(installed: Mapping[str, Collection[str]]) -> bytes:
    """Return the text of the list.

    Args:
        installed: Path -> digests.
    """
    text = "".join(f"{found}  {name}\n" for name in sorted(installed) for found in sorted(installed[name]))
    return text.encode()
