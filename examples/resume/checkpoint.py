"""Stop when Slurm wants it, and go on from the last checkpoint: all that a training script needs. Copy it.

    slot = Slot()                                     # before the first step
    for step in range(first, steps):                  # first: what the newest checkpoint says, else 0
        train_one_step()
        if slot.is_over or (step + 1) % 500 == 0:
            save(folder, step + 1, lambda file: torch.save(state, file))
        if slot.is_over:
            slot.come_back()

`train.py` next to this file is a whole one, `resume.sh` its job script. With several processes (DDP), the one of rank 0
saves, and all of them must leave after the same step: share `is_over` by an all_reduce.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NoReturn

RUN_AGAIN = 75
"""Exit status of a run that is to go on (EX_TEMPFAIL of sysexits.h)."""

KEPT = 2
"""Checkpoints that stay: the newest, and the one before it."""


class Slot:
    """The time that Slurm gives to this run.

    Its end is announced by a signal: SIGUSR1 where the script asks for one (`#SBATCH --signal=B:USR1@120`: 120 s before
    its time limit, or up to a minute earlier), SIGTERM when a job is preempted, requeued or cancelled. Slurm's KillWait
    or the partition's GraceTime says how long a job may then go on; SIGKILL follows.
    """

    def __init__(self) -> None:
        self._reported: int | None = None
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._note)
        os.register_at_fork(after_in_child=_ordinary_signals)  # the workers of a DataLoader end as ever

    @property
    def is_over(self) -> bool:
        """Whether a signal came; look after each step."""
        return self._reported is not None

    def come_back(self) -> NoReturn:
        """Leave, after the checkpoint; if the slot ended, put the job back into the queue under its id.

        A job that got SIGTERM is not requeued here: Slurm has done that, or the user has cancelled it.
        """
        job_id = os.environ.get("SLURM_JOB_ID")
        if job_id is not None and self._reported == signal.SIGUSR1:
            subprocess.run(["scontrol", "requeue", job_id], check=False)
        sys.exit(RUN_AGAIN)

    def _note(self, number: int, frame: object) -> None:
        self._reported = self._reported or number


def _ordinary_signals() -> None:
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def save(folder: Path, step: int, write: Callable[[BinaryIO], None]) -> Path:
    """Write a checkpoint that is either whole or not there, even if the node fails now.

    Args:
        folder: Where this job's checkpoints are, on a file system that every node sees.
        step: Steps that are done.
        write: Writes the state into an open file.

    Returns:
        The checkpoint.

    Raises:
        OSError: It cannot be written; those from before are still there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("*.part"):  # of a run that was killed while it wrote
        left.unlink(missing_ok=True)
    whole = folder / f"step-{step:09d}"
    part = whole.with_suffix(".part")
    with part.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    part.rename(whole)
    _sync(folder)
    for old in _checkpoints(folder)[:-KEPT]:
        old.unlink(missing_ok=True)
    return whole


def newest(folder: Path) -> Path | None:
    """Return the newest checkpoint; None if there is none yet."""
    found = _checkpoints(folder)
    return found[-1] if found else None


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if not path.suffix)


def _sync(folder: Path) -> None:
    """Let the file's name, too, outlive a crash of the node."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
