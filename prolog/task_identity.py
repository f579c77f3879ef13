"""Identify a task's job and step by the process title of its slurmstepd, which no user can choose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.core.process.identity import PROC

_TITLE = re.compile(rb"^slurmstepd: \[(\d{1,10})(?:\+(\d{1,10}))?\.(\w+)\]")
"""slurmstepd's process title, with job and step; the process that starts RAD still has it."""

_MOST_SHELLS = 8


def own_job_id(task: Mapping[str, str], title: bytes) -> int | None:
    """Return the id under which the Prolog knows the task's job; None outside a job.

    In a heterogeneous job every task gets the id of the first component, while each component has its Prologs under
    a separate id; slurmstepd's title has that (seen on 22.05.8, 24.11.5 and 26.05.5).

    Args:
        task: The task's own environment.
        title: Command line of its slurmstepd, from /proc; empty if it is hidden.

    >>> own_job_id({"SLURM_JOB_ID": "6"}, b"slurmstepd: [7.0]"), own_job_id({"SLURM_JOB_ID": "6"}, b"")
    (7, 6)
    """
    id_text = task.get("SLURM_JOB_ID", "")
    if not (id_text.isdecimal() and len(id_text) <= 10):
        return None
    found = _TITLE.match(title)
    return int(id_text) if found is None else int(found[1]) + int(found[2] or 0)


def is_batch_script(task: Mapping[str, str], title: bytes) -> bool:
    """Return whether the task is the job's batch script and not one of an srun.

    slurmstepd's title shows it, and no user can choose that. Where /proc hides it, the step's number shows it: the
    batch script has none on 22.05 and 24.11, and -5 on 26.05 (seen there; SLURM_BATCH_SCRIPT printed with a sign).

    Args:
        task: The task's own environment.
        title: Command line of its slurmstepd, from /proc; empty if it is hidden.

    >>> is_batch_script({"SLURM_STEP_ID": "0"}, b"slurmstepd: [12.batch]"), is_batch_script({}, b"slurmstepd: [12.0]")
    (True, False)
    >>> is_batch_script({"SLURM_STEP_ID": "-5"}, b""), is_batch_script({"SLURM_STEP_ID": "0"}, b"")
    (True, False)
    """
    found = _TITLE.match(title)
    return found[3] == b"batch" if found else not task.get("SLURM_STEP_ID", "").isdigit()


def slurmstepd_title(pid: int, *, proc: Path = PROC) -> bytes:
    """Return the title of the slurmstepd above a process; empty if it cannot be read.

    Between the two there may be shells: RAD's, and the site's own TaskProlog that starts RAD's.

    Args:
        pid: The process.
        proc: Where /proc is (proc(5), /proc/PID/cmdline and field 4 of /proc/PID/stat).
    """
    try:
        for _ in range(_MOST_SHELLS):
            title = (proc / str(pid) / "cmdline").read_bytes().partition(b"\0")[0]
            if pid <= 1 or _TITLE.match(title):
                return title
            pid = int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return b""
