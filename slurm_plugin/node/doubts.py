"""Runs that a sweep found nothing of, until a later one lets them run again: RUN/doubted/ID, with the restart count.

A hook sweeps, too, and rad-monitor may be started again in between: what one of them learned is here for the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from slurm_plugin.core.files.preallocated import SpareFiles

LEAST_AGE_S = 10.0
"""Had a run ended just before it was doubted, Slurm knows of it by then."""

Doubt = tuple[int, int | None]
"""A job's id and the restart count of its run; None where that is not known."""


def doubt(run: Path, doubted: Iterable[Doubt]) -> None:
    """Keep doubts; one that is there already keeps its age.

    Args:
        run: Folder of the node's state (`paths.run`).
        doubted: What a sweep found.
    """
    for job_id, restart in doubted:
        path = run / "doubted" / str(job_id)
        text = "" if restart is None else str(restart)
        with suppress(OSError):
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not path.exists() or path.read_text(encoding="ascii").strip() != text:
                SpareFiles(run).write(path, text.encode())


def earlier_doubts(run: Path, *, now_s: float) -> tuple[Doubt, ...]:
    """Return the doubts of earlier sweeps.

    Args:
        run: Folder of the node's state (`paths.run`).
        now_s: Seconds since the epoch; a clock that was set back makes doubts old enough.
    """
    found: list[Doubt] = []
    with suppress(OSError):
        for path in sorted((run / "doubted").iterdir()):
            if path.name.isdecimal() and not 0 <= now_s - path.stat().st_mtime < LEAST_AGE_S:
                text = path.read_text(encoding="ascii").strip()
                found.append((int(path.name), int(text) if text else None))
    return tuple(found)


def forget_doubts(run: Path, doubted: Iterable[Doubt]) -> None:
    """Take doubts away: something of the run was seen, or it was decided what becomes of it.

    Args:
        run: Folder of the node's state (`paths.run`).
        doubted: Of `earlier_doubts`.
    """
    for job_id, _ in doubted:
        SpareFiles(run).discard(run / "doubted" / str(job_id))
