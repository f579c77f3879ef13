"""Read the end of a job's output files with the identity of the job's user, never with root's.

A user chooses these paths. Each is read by a separate child process, which takes the user's identity for good, opens
only regular files, and waits neither for a FIFO nor for the other end of a link. A file system that hangs costs only
that child: the Epilog keeps its time, and the other files their tails.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.process.child import Child, ChildError
from slurm_plugin.core.units import KIB
from slurm_plugin.slurm.node.output_before import MOST_FILES, OPENED, Before, run_begins_at
from slurm_plugin.slurm.node.owner import Identity, become

TAIL_BYTES = 256 * KIB


def read_tails(
    paths: Sequence[str], *, owner: Identity, deadline: Deadline, befores: Sequence[Before] = ()
) -> tuple[str, ...]:
    """Return the last TAIL_BYTES of each output file that can be read, without content from before the run.

    Args:
        paths: The files, as named by the job's user.
        owner: The job's user.
        befores: The state of the files before the run.
        deadline: What is not read by then is left out.
    """
    children, tails = [], []
    for path in paths[:MOST_FILES]:
        with suppress(ChildError):
            children.append(Child(partial(_tail, path, owner, befores), timeout_s=deadline.remaining_s()))
    for child in children:
        with suppress(ChildError):
            tails.append(child.answer().decode(errors="replace"))
    return tuple(tails)


def _tail(path: str, owner: Identity, befores: Sequence[Before]) -> bytes:
    """Return the end of one file; any exception ends the child without an answer."""
    become(owner)
    handle = os.open(path, OPENED)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is no regular file")
    os.lseek(handle, max(run_begins_at(handle, befores), status.st_size - TAIL_BYTES), os.SEEK_SET)
    found = b""
    while len(found) < TAIL_BYTES and (part := os.read(handle, TAIL_BYTES - len(found))):
        found += part
    return found
