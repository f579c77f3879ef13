"""Clear the start delay of the job that was requeued first, once a GPU is freed.

radd is notified, too: it sets the delay of a requeue once the job is pending, which may be after the change here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypeGuard

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.comments.admin_comment import Note, read_signed, signed_note
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.ledger.requeued_jobs import RequeuedJob, end_waiting
from slurm_plugin.core.logs.events import EventKind, LogEvent
from slurm_plugin.slurm.control import JobChange, JobView, SlurmControl, put_off

MOST_QUERIED = 5
"""Jobs that an Epilog queries: each query takes some milliseconds, and the node waits for its Epilogs."""

_WAITS = ("PENDING", "COMPLETING")
"""A job that was requeued a moment ago is still completing."""


def wake(
    waiting: Sequence[RequeuedJob], run: Path, control: SlurmControl, clock: Clock, *, key: bytes | None
) -> LogEvent:
    """Let the first job that can use it start as soon as Slurm can run a Prolog for it here; return the outcome.

    One job for each that ends: more of them would find no GPU and be requeued again. A job that no longer waits
    (cancelled, held, started on another node) is forgotten: it would take the place of one that does.

    Args:
        waiting: The jobs that this node requeued, the one that waits longest first; at least one.
        run: Folder of the node's state (`paths.run`).
        control: Slurm.
        clock: Time.
        key: The cluster's key; without it a woken job's queue position is lost.
    """
    problems = []
    for each in waiting[:MOST_QUERIED]:
        try:
            view = control.job(each.job_id)
        except SlurmError as exc:  # it may answer the next Epilog
            problems.append(f"job {each.job_id}: {exc}")
            break
        end_waiting(run, each.job_id)
        if not _can_start(view, each, now_s=clock.now_s()):
            problems.append(f"job {each.job_id} no longer waits")
            continue
        left_s = max(0, math.ceil(each.earliest_s - clock.now_s()))
        change = JobChange(
            start_in_s=left_s or None,
            start_now=not left_s,
            admin_comment=_comment_for(view, each, left_s=left_s, key=key),
        )
        try:
            control.update(each.job_id, change)
        except SlurmError as exc:
            problems.append(f"job {each.job_id}: {exc}")
            continue
        return LogEvent(kind=EventKind.WOKEN, detail=f"job {each.job_id} may start in {left_s} s")
    return LogEvent(kind=EventKind.NOT_WOKEN, detail="; ".join(problems))


def _comment_for(view: JobView, waiting: RequeuedJob, *, left_s: int, key: bytes | None) -> str:
    """Return the note of a woken job: it replaces the requeue's note, so it keeps the queue position."""
    before = read_signed(view.admin_comment, job_id=view.job_id, user_id=view.user_id, key=key)
    note = Note(
        event="woken",
        start_in_s=left_s,
        restart=waiting.restart,
        position=before.position if before is not None and before.restart == waiting.restart else None,
        server_ends=before.server_ends if before is not None else None,
        detail="a GPU is free again",
    )
    return signed_note(note, job_id=view.job_id, user_id=view.user_id, key=key)


def _can_start(view: JobView | None, waiting: RequeuedJob, *, now_s: float) -> TypeGuard[JobView]:
    """Return whether a job waits for what this node requeued it for, and is neither held nor deferred.

    A job that has run on another node since, and was preempted or requeued there, waits for that node: it must not
    start before that node could run a Prolog for it.
    """
    if view is None or view.state not in _WAITS or view.priority == 0:
        return False
    if view.restarts > waiting.restart:
        return False
    return not put_off(view, now_s=now_s)
