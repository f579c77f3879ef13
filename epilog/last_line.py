"""One line at the end of a job's own output: what it used and what to do next time.

The file is the user's, who chose its path and may be hostile. A child takes his identity for good, adds to nothing but
a regular file that is there already, follows no link in the path's last part, and waits for nothing; what goes wrong
leaves the line out. It goes where errors go, so that whoever reads a job's results from its stdout is not disturbed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping

from slurm_plugin.core.history.advice import next_time, used
from slurm_plugin.core.history.runs import Run
from slurm_plugin.core.logs.events import Event, EventKind
from slurm_plugin.core.process.child import ChildError, in_child
from slurm_plugin.core.text import one_line
from slurm_plugin.slurm.node.hook_env import HookJob
from slurm_plugin.slurm.node.output_files import expected_outputs, names_matter
from slurm_plugin.slurm.node.owner import Identity, become

WRITE_S = 1.0
"""Of a hook's time; a file system that does not answer by then gets no line."""

_LONGEST = 300
_COMMON = os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def tell_owner(
    job: HookJob, run: Run, *, remembered: bool, runs_again: str, names: Callable[[], Mapping[str, str]]
) -> Event | None:
    """Add the line to a job's own output; return what came of it, None where there is nothing to tell.

    Args:
        job: The job.
        run: How it went.
        remembered: Whether radd remembers what it needed.
        runs_again: Why it runs again, or "".
        names: Asks Slurm what %x, %A and %a stand for.
    """
    line = line_of(run, remembered=remembered, runs_again=runs_again)
    paths = expected_outputs(job, names() if names_matter(job) else {}) if line else ()
    if not paths:
        return None
    owner = Identity(user_id=job.user_id, group_id=job.group_id, user_name=job.user_name)
    told = append(paths[-1], line, owner)
    return Event(kind=EventKind.TOLD_OWNER if told else EventKind.NOT_TOLD_OWNER, detail=line)


def line_of(run: Run, *, remembered: bool, runs_again: str) -> str:
    """Return the line; "" if there is nothing to tell.

    Args:
        run: How it went.
        remembered: Whether radd remembers what it needed.
        runs_again: Why it runs again, or "".
    """
    told = used(run)
    if not told:
        return ""
    advice = (runs_again,) if runs_again else next_time(run, remembered=remembered)[:1]
    return one_line("; ".join((f"RAD: job {run.job_id} {told}", *advice)), _LONGEST)


def append(path: str, line: str, owner: Identity) -> bool:
    """Add a line to a file as its owner; return whether that was done.

    Args:
        path: The file, as the job's owner named it.
        line: The line, without its end.
        owner: The job's owner.
    """

    def task() -> bytes:
        become(owner)
        return b"done" if _add(path, line) else b""

    try:
        return in_child(task, timeout_s=WRITE_S) == b"done"
    except ChildError:
        return False


def _add(path: str, line: str) -> bool:
    handle = _opened(path)
    if handle is None:
        return False
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return False
        start = b"" if _ends_a_line(handle, status.st_size) else b"\n"
        os.write(handle, start + line.encode() + b"\n")
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _opened(path: str) -> int | None:
    """Return the file, opened to be read and added to, or only added to where its owner may do no more."""
    for access in (os.O_RDWR, os.O_WRONLY):
        try:
            return os.open(path, access | _COMMON)
        except (OSError, ValueError):
            continue
    return None


def _ends_a_line(handle: int, size: int) -> bool:
    try:
        return size == 0 or os.pread(handle, 1, size - 1) == b"\n"
    except OSError:  # it may not be read
        return False
