"""User names for display."""

from __future__ import annotations

import pwd


def name_of(user_id: int) -> str:
    """Return a user's name, or the number if this machine does not know it.

    >>> name_of(0), name_of(4294967294)
    ('root', '4294967294')
    """
    try:
        return pwd.getpwuid(user_id).pw_name
    except (KeyError, OverflowError, ValueError):
        return str(user_id)
