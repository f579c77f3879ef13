"""Runs that a reconciliation found no trace of, until a later one decides: one observation proves nothing.

    RUN/unconfirmed/ID    restart count of a run that Slurm reports and this node knows nothing of; it is requeued
    RUN/missed/ID         the same of a run that Slurm did not list; its allocation is released

Hooks reconcile, too, and rad-monitor may be restarted in between: each stores its findings here for the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from slurm_plugin.core.files.preallocated import SpareFiles

LEAST_AGE_S = 10.0
"""If a run ended just before it was recorded here, Slurm knows its end after this time."""

UnconfirmedRun = tuple[int, int | None]
"""A job's id and the restart count of its run; None where that is not known."""

UnconfirmedKind = Literal["unconfirmed", "missed"]


def record_unconfirmed(
    run: Path, runs: Iterable[UnconfirmedRun], kind: UnconfirmedKind = "unconfirmed"
) -> None:
    """Record such runs; one that is recorded already keeps its age.

    Args:
        run: Folder of the node's state (`paths.run`).
        runs: The runs that a reconciliation found.
        kind: Their folder.
    """
    for job_id, restart in runs:
        path = run / kind / str(job_id)
        text = "" if restart is None else str(restart)
        with suppress(OSError):
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not path.exists() or path.read_text(encoding="ascii").strip() != text:
                SpareFiles(run).write(path, text.encode())


def earlier_unconfirmed(
    run: Path, *, now_s: float, kind: UnconfirmedKind = "unconfirmed"
) -> tuple[UnconfirmedRun, ...]:
    """Return the runs that earlier reconciliations recorded.

    Args:
        run: Folder of the node's state (`paths.run`).
        now_s: Seconds since the epoch; if the clock was set back, records count as old enough.
        kind: Their folder.
    """
    found: list[UnconfirmedRun] = []
    with suppress(OSError):
        for path in sorted((run / kind).iterdir()):
            if path.name.isdecimal() and not 0 <= now_s - path.stat().st_mtime < LEAST_AGE_S:
                text = path.read_text(encoding="ascii").strip()
                found.append((int(path.name), int(text) if text else None))
    return tuple(found)


def forget_unconfirmed(
    run: Path, runs: Iterable[UnconfirmedRun], kind: UnconfirmedKind = "unconfirmed"
) -> None:
    """Remove records: a trace of the run was seen, or it was decided how to treat it.

    Args:
        run: Folder of the node's state (`paths.run`).
        runs: Runs from `earlier_unconfirmed`.
        kind: Their folder.
    """
    for job_id, _ in runs:
        SpareFiles(run).discard(run / kind / str(job_id))
