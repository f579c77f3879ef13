"""Open a file that a user or an admin names, without waiting for a FIFO or a device."""

from __future__ import annotations

import errno
import os
import stat


def opened(path: str, flags: int) -> int:
    """Open a regular file, as `opener` of `open`.

    Args:
        path: The file.
        flags: Of the opening.

    Raises:
        OSError: It cannot be opened, or is a FIFO or a device.
    """
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # open() refuses a folder
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "not a regular file", path)
