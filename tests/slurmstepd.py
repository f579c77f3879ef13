"""A stand-in for slurmstepd: what it starts counts as a job's, where no Slurm runs the jobs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_STEP = """
user=$1
shift
setpriv --reuid="$user" --regid="$user" --clear-groups --pdeathsig KILL "$@"
status=$?
[ $status -lt 128 ] || kill -$((status - 128)) $$
exit $status
"""


def step(folder: Path, job_id: int, user_id: int, argv: Sequence[str]) -> Mapping[str, Any]:
    """Return what Popen starts for a program of a job: a process of root's with the name and the title of Slurm's.

    It ends as the program does, and the program with it.

    Args:
        folder: Folder of the copied program, which the user may enter.
        job_id: The job.
        user_id: Its user.
        argv: The program and its arguments.
    """
    program = folder / "slurmstepd"
    if not program.exists():
        shutil.copy("/bin/sh", program)
    title = f"slurmstepd: [{job_id}.batch]"
    return {"args": [title, "-c", _STEP, "sh", str(user_id), *argv], "executable": program}
