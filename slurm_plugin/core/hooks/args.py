"""The one option of the hooks, read without argparse or pathlib: a hook starts with every job."""

from __future__ import annotations

from collections.abc import Sequence


def config_path(argv: Sequence[str]) -> str:
    """Return the path after `--config`, or the default one.

    >>> config_path(["prolog", "--config", "/etc/rad/n1.toml"])
    '/etc/rad/n1.toml'
    """
    words = list(argv[1:])
    if "--config" in words[:-1]:
        return words[words.index("--config") + 1]
    from slurm_plugin.core.config.load import DEFAULT_PATH

    return str(DEFAULT_PATH)
