"""One line of text for each thing a hook does, appended to a file by a single write."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from slurm_plugin.core.clock import Clock

_LONGEST = 2000


class HookLog:
    """The log of one hook; a log that cannot be written is no reason to fail.

    Args:
        folder: paths.log.
        name: "prolog", "epilog", ...
        job_id: The job that every line names.
        clock: Time.
    """

    def __init__(self, folder: str, name: str, *, job_id: int, clock: Clock) -> None:
        self._path = Path(folder) / f"{name}.log"
        self._job_id = job_id
        self._clock = clock
        self._start_s = clock.monotonic_s()

    def write(self, text: str) -> None:
        """Append a line; it says how long the hook has run, which monitor/hook_counts.py reads."""
        after_ms = round((self._clock.monotonic_s() - self._start_s) * 1000)
        time = datetime.fromtimestamp(self._clock.now_s()).isoformat(timespec="milliseconds")
        line = f"{time} job={self._job_id} after={after_ms}ms {' '.join(text.split())[:_LONGEST]}\n"
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(self._path, flags, 0o640)
        except OSError:
            return
        try:
            os.write(handle, line.encode())
        except OSError:
            return
        finally:
            os.close(handle)
