"""A job ends, its GPU is free: the job that was put back first need not wait until its delay is over.

radd hears of it, too: it sets the delay of a put-back once the job is pending, which may be after we changed it here.
"""

from __future__ import annotations

import math
from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.core.events import Event, EventKind
from slurm_plugin.core.note import Note, format_note
from slurm_plugin.core.waiting import Waiting, end_waiting
from slurm_plugin.slurm.control import JobChange, SlurmControl


def wake(waiting: Waiting, run: Path, control: SlurmControl, clock: Clock) -> Event:
    """Let a job start as soon as Slurm can run a Prolog for it here, and forget that it waits.

    One job for each that ends: more of them would find no GPU and go back into the queue again.

    Args:
        waiting: The job that has waited longest.
        run: Folder of the node's state (`paths.run`).
        control: Slurm.
        clock: Time.
    """
    left_s = max(0, math.ceil(waiting.earliest_s - clock.now_s()))
    note = format_note(Note(event="woken", start_in_s=left_s, detail="a GPU is free again"))
    change = JobChange(start_in_s=left_s or None, start_now=not left_s, admin_comment=note)
    end_waiting(run, waiting.job_id)
    try:
        control.update(waiting.job_id, change)
    except SlurmError as exc:
        return Event(kind=EventKind.NOT_WOKEN, detail=f"job {waiting.job_id}: {exc}")
    return Event(kind=EventKind.WOKEN, detail=f"job {waiting.job_id} may start in {left_s} s")
