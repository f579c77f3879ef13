"""Release locks of flock(2)."""

from __future__ import annotations

import fcntl
import os


def release(handle: int) -> None:
    """Release a file's lock at once, and close the file.

    A child that another thread started meanwhile has a copy of the handle: closing alone keeps the lock until it ends.

    Args:
        handle: Of the open file.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)
