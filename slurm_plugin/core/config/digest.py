"""A short text by which a daemon tells with which settings it runs."""

from __future__ import annotations

import hashlib

from slurm_plugin.core.config.load import Config


def digest_of(config: Config) -> str:
    """Return 8 hexadecimal digits that are the same for the same settings, comments and order of lines aside.

    >>> digest_of(Config()) == digest_of(Config(mode="observe")) != digest_of(Config(mode="enforce"))
    True
    """
    return hashlib.sha256(repr(config).encode()).hexdigest()[:8]
