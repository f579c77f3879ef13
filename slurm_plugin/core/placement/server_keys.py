"""Keys of MPS servers: which jobs on a GPU share one.

Jobs of one server run at once; servers of one GPU take turns.
"""

from __future__ import annotations

import hashlib
import re

from slurm_plugin.core.records.submission import ServerScope

_KEY = re.compile(r"\d{1,10}|a[0-9a-f]{12}|all|j\d{1,10}")
_ACCOUNT_HEX = 12
"""An account's name may be too long for a unix socket's path, and hold a slash."""
LONGEST_KEY = 1 + _ACCOUNT_HEX


def server_key(scope: ServerScope, *, user_id: int, account: str, job_id: int, own: bool = False) -> str:
    """Return the key of a job's MPS server on any GPU, which is also the name of its folder.

    Args:
        scope: The partition's `mps_server`.
        user_id: The job's user.
        account: The job's Slurm account, as Slurm enforces it; "" if it does not: then its user counts.
        job_id: Slurm's job id.
        own: Whether it shares its server with no other job.

    >>> server_key("user", user_id=1000, account="lab", job_id=7), server_key("gpu", user_id=1, account="", job_id=7)
    ('1000', 'all')
    >>> server_key("account", user_id=1000, account="lab", job_id=7)
    'aa51146d38077'
    >>> server_key("account", user_id=1000, account="", job_id=7)
    '1000'
    >>> server_key("gpu", user_id=1000, account="lab", job_id=7, own=True)
    'j7'
    """
    if own:
        return f"j{job_id}"
    if scope == "gpu":
        return "all"
    if scope == "account" and account:
        return f"a{hashlib.sha256(account.encode(errors='surrogateescape')).hexdigest()[:_ACCOUNT_HEX]}"
    return str(user_id)


def is_server_key(name: str) -> bool:
    """Return whether a name is a key as `server_key` makes them."""
    return _KEY.fullmatch(name) is not None


def user_of(key: str) -> int | None:
    """Return the only user of a server; None for a server that is not one user's by its key."""
    return int(key) if key.isdecimal() else None


def is_shared(key: str) -> bool:
    """Return whether jobs of several users may be on a server.

    >>> [key for key in ("1000", "all", "aa51146d38077", "j7") if is_shared(key)]
    ['all', 'aa51146d38077']
    """
    return user_of(key) is None and not key.startswith("j")
