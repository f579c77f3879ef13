"""Where radd keeps files of its own beside its socket: in a folder that is SlurmUser's alone.

The folder of the socket is root's where systemd made it, and on a GPU node the Prolog trusts what stands there.
"""

from __future__ import annotations

from pathlib import Path


def own_file(socket: Path, name: str) -> Path:
    """Return the path of a file of radd's own; its folder may not be there yet.

    Args:
        socket: radd's socket (`paths.socket`).
        name: The file's name.

    >>> own_file(Path("/run/rad/radd.sock"), "lock").as_posix()
    '/run/rad/radd/lock'
    """
    return socket.parent / "radd" / name
