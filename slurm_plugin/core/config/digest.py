"""A short text by which a daemon shows with which settings it runs."""

from __future__ import annotations

import hashlib

from slurm_plugin.core.config.load import Config


def digest_of(config: Config) -> str:
    """Return 8 hexadecimal digits that are the same for the same settings, comments and order of lines aside.

    >>> digest_of(Config()) == digest_of(Config(mode="enforce")) != digest_of(Config(mode="observe"))
    True
    """
    return hashlib.sha256(repr(config).encode()).hexdigest()[:8]
