"""Where radd keeps its files next to its socket: in a folder that only SlurmUser can write.

The socket's folder belongs to root where systemd made it, and on a GPU node the Prolog trusts what is in it.
"""

from __future__ import annotations

from pathlib import Path


def own_file(socket: Path, name: str) -> Path:
    """Return the path of one of radd's files; its folder may not exist yet.

    Args:
        socket: radd's socket (`paths.socket`).
        name: The file's name.

    >>> own_file(Path("/run/rad/radd.sock"), "lock").as_posix()
    '/run/rad/radd/lock'
    """
    return socket.parent / "radd" / name
