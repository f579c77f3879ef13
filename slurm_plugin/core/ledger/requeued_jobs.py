"""Jobs that were requeued from this node and wait for one of its GPUs: the Epilog that frees one wakes the next job.

RUN/waiting/ID      owned by root; when Slurm may start the job again at the earliest, the restart count of that rerun,
                    and its shortfall: since when, how many bytes, on which GPUs
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from gpumemnet.records import frozen
from slurm_plugin.core.files.atomic import replace_file

LACKING_S = 30.0
"""A shortfall counts for this long: the job may be cancelled meanwhile, and records it again when it is requeued."""


@frozen
class Lack:
    """Shortfall: memory that a job books and does not get, because other jobs use more than they may.

    Attributes:
        since_s: When it was found, seconds since the epoch.
        need_bytes: What the job needs on each GPU to start there.
        gpus: UUIDs of the GPUs where it would fit if no job used more than it booked.
    """

    since_s: float
    need_bytes: int
    gpus: tuple[str, ...]


@frozen
class RequeuedJob:
    """One requeued job.

    Attributes:
        job_id: Slurm's job id.
        earliest_s: When Slurm can start it on the same node again at the earliest, seconds since the epoch.
        restart: Restart count of the rerun that waits.
        lack: Its shortfall; None if no other job uses more than it booked.
    """

    job_id: int
    earliest_s: float
    restart: int
    lack: Lack | None = None


def begin_waiting(run: Path, waiting: RequeuedJob) -> None:
    """Record that a job waits; without the note it waits until its start delay is over.

    Args:
        run: Folder of the node's state (`paths.run`).
        waiting: The job, and when Slurm can start it again at the earliest.
    """
    with contextlib.suppress(OSError):
        (run / "waiting").mkdir(mode=0o755, exist_ok=True)
        replace_file(run / "waiting" / str(waiting.job_id), _as_text(waiting).encode())


def waiting_jobs(run: Path) -> tuple[RequeuedJob, ...]:
    """Return the jobs that wait, the longest waiting first."""
    try:
        names = os.listdir(run / "waiting")
    except OSError:
        return ()
    found = []
    for name in filter(str.isdigit, names):  # others are drafts
        with contextlib.suppress(OSError, ValueError):  # one that another Epilog has just woken
            found.append(_from_text(int(name), (run / "waiting" / name).read_text(encoding="ascii")))
    return tuple(sorted(found, key=lambda each: (each.earliest_s, each.job_id)))


def lacking_bytes(waiting: Iterable[RequeuedJob], *, now_s: float) -> dict[str, int]:
    """Return the largest shortfall of a waiting job on each GPU, by UUID.

    Args:
        waiting: The jobs that were requeued from this node.
        now_s: Seconds since the epoch.
    """
    found: dict[str, int] = {}
    for each in waiting:
        if each.lack is not None and abs(now_s - each.lack.since_s) <= LACKING_S:
            for gpu in each.lack.gpus:
                found[gpu] = max(found.get(gpu, 0), each.lack.need_bytes)
    return found


def _as_text(waiting: RequeuedJob) -> str:
    """Return a note.

    >>> _as_text(RequeuedJob(job_id=7, earliest_s=9, restart=2, lack=Lack(since_s=8, need_bytes=1, gpus=("GPU-0",))))
    '9 2 8 1 GPU-0'
    """
    words = [f"{waiting.earliest_s:.0f}", str(waiting.restart)]
    if waiting.lack is not None:
        lack = waiting.lack
        words += [f"{lack.since_s:.0f}", str(lack.need_bytes), *lack.gpus]
    return " ".join(words)


def _from_text(job_id: int, text: str) -> RequeuedJob:
    """Return the content of a note.

    Raises:
        ValueError: It is no note.
    """
    earliest_s, restart, *more = text.split()
    lack = None
    if len(more) > 2:
        lack = Lack(since_s=float(int(more[0])), need_bytes=int(more[1]), gpus=tuple(more[2:]))
    return RequeuedJob(job_id=job_id, earliest_s=float(int(earliest_s)), restart=int(restart), lack=lack)


def end_waiting(run: Path, job_id: int) -> None:
    """Forget that a job waits; safe to repeat.

    Args:
        run: Folder of the node's state (`paths.run`).
        job_id: The job.
    """
    with contextlib.suppress(OSError):
        (run / "waiting" / str(job_id)).unlink(missing_ok=True)
