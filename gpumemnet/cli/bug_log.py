"""Where the traceback of a bug goes, so that a user sees one line and we see all of it."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path


def keep_traceback(error: BaseException) -> str:
    """Append an error's traceback to ~/.local/state/rad/bugs.log, and say where it is.

    Args:
        error: What was not expected.

    Returns:
        A few words with the file's path, or with the traceback where no file can be written.
    """
    text = f"rad-estimate {' '.join(sys.argv[1:])}\n{''.join(traceback.format_exception(error))}\n"
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rad"
    path = folder / "bugs.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return f"no log could be written, so here it is: {text}"
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return f"its traceback is in {path}"
