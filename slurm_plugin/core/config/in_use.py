"""A short text by which a daemon shows with which rad.toml it runs, for `rad doctor`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from slurm_plugin.core.config.load import Config


def in_use(config: Config, path: Path) -> str:
    """Return a text that is the same for the same settings of the same file, comments and order of lines aside.

    Args:
        config: The settings in force.
        path: The file.

    >>> here = Path("rad.toml")
    >>> in_use(Config(), here) == in_use(Config(mode="enforce"), here) != in_use(Config(mode="off"), here)
    True
    """
    return f"{hashlib.sha256(repr(config).encode()).hexdigest()[:8]} {path}"


def differs(daemon: str, here: str) -> bool:
    """Return whether a daemon runs with other settings than its file has now; False where it reads another file.

    Args:
        daemon: Its `in_use`; "" if unknown.
        here: That of the file here.

    >>> differs("1a b.toml", "2c b.toml"), differs("1a d.toml", "2c b.toml"), differs("", "2c b.toml")
    (True, False, False)
    """
    return daemon != here and daemon.partition(" ")[2] == here.partition(" ")[2]
