"""Which jobs were put back from this node and wait for a GPU of it: whoever frees one wakes the next.

RUN/waiting/ID      root's; when Slurm may start the job again at the earliest, and the restart count of that rerun
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.whole_file import replace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One job that was put back.

    Attributes:
        job_id: Slurm's job id.
        earliest_s: Before this Slurm could not start it on the same node again, seconds since the epoch.
        restart: Restart count of the rerun that waits; None in the note of an older release.
    """

    job_id: int
    earliest_s: float
    restart: int | None = None


def begin_waiting(run: Path, waiting: Waiting) -> None:
    """Note that a job waits; without the note it waits as long as it was told.

    Args:
        run: Folder of the node's state (`paths.run`).
        waiting: The job, and when Slurm can start it again at the earliest.
    """
    with contextlib.suppress(OSError):
        (run / "waiting").mkdir(mode=0o755, exist_ok=True)
        restart = "" if waiting.restart is None else f" {waiting.restart}"
        replace_file(run / "waiting" / str(waiting.job_id), f"{waiting.earliest_s:.0f}{restart}".encode())


def waiting_jobs(run: Path) -> tuple[Waiting, ...]:
    """Return the jobs that wait, whoever has waited longest first."""
    try:
        names = os.listdir(run / "waiting")
    except OSError:
        return ()
    found = []
    for name in filter(str.isdigit, names):  # others are drafts
        with contextlib.suppress(OSError, ValueError):  # one that another Epilog has just woken
            earliest_s, _, restart = (run / "waiting" / name).read_text(encoding="ascii").partition(" ")
            found.append(
                Waiting(
                    job_id=int(name),
                    earliest_s=float(int(earliest_s)),
                    restart=int(restart) if restart else None,
                )
            )
    return tuple(sorted(found, key=lambda each: (each.earliest_s, each.job_id)))


def end_waiting(run: Path, job_id: int) -> None:
    """Forget that a job waits; safe to repeat.

    Args:
        run: Folder of the node's state (`paths.run`).
        job_id: The job.
    """
    with contextlib.suppress(OSError):
        (run / "waiting" / str(job_id)).unlink(missing_ok=True)
