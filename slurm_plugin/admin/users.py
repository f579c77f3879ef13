"""User names and ids."""

from __future__ import annotations

import pwd

from slurm_plugin.core.errors import ConfigError


def name_of(user_id: int) -> str:
    """Return a user's name, or the number if this machine does not know it.

    >>> name_of(0), name_of(4294967294)
    ('root', '4294967294')
    """
    try:
        return pwd.getpwuid(user_id).pw_name
    except (KeyError, OverflowError, ValueError):
        return str(user_id)


def id_of(name: str) -> int:
    """Return the id of a user; a number is one.

    Raises:
        ConfigError: This machine does not know the name.

    >>> id_of("root"), id_of("1000")
    (0, 1000)
    """
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        if name.isascii() and name.isdecimal():
            return int(name)
        raise ConfigError(f"this machine knows no user {name}; give the user id") from None
