"""Log the traceback of a bug in RAD to a file of the user, so that the screen shows only one line."""

from __future__ import annotations

import os
import time
from pathlib import Path

NAME = "bugs.log"


def keep(program: str, arguments: list[str], error: BaseException) -> str:
    """Append an error's traceback to `$XDG_STATE_HOME/rad/bugs.log`.

    Args:
        program: Name of the failed program.
        arguments: Its arguments.
        error: The unexpected error.

    Returns:
        Path of the log; the traceback itself if no file can be written.
    """
    import traceback  # only a bug needs it

    text = "".join(traceback.format_exception(error))
    path = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rad" / NAME
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return f"no log could be written, so here it is:\n{text}"
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {program} {' '.join(arguments)}\n{text}\n")
    return f"its traceback is in {path}"
