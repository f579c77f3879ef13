"""The one option of the hooks, read without argparse: a hook starts with every job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slurm_plugin.core.config import DEFAULT_PATH


def config_path(argv: Sequence[str]) -> Path:
    """Return the path after `--config`, or the default one.

    >>> config_path(["prolog", "--config", "/etc/rad/n1.toml"])
    PosixPath('/etc/rad/n1.toml')
    """
    words = list(argv[1:])
    return Path(words[words.index("--config") + 1]) if "--config" in words[:-1] else DEFAULT_PATH
