"""Notes that RAD's hooks write into a job's AdminComment: readable for users, and the channel from nodes to radd.

    rad: recovered peak_mib=13210 start_in_s=0 restart=1 - CUDA out of memory sig:5d1c0a9b8e7f6a5b
    rad: requeued start_in_s=15 restart=1 submitted=1795463013 accrued=1795463013 priority=1 - no idle GPU sig:...
    rad: ended estimate_mib=10432 peak_mib=9876 smact_pct=41 ran_s=3600 restart=0 - sig:...

A note that changes a start time or a priority, or from which a need is learned, is signed with the cluster's key for
its job, user and restart. A note without a valid signature is shown and has no effect: its place in the AdminComment
proves nothing. A note stays when Slurm or a user requeues the job again, so it names the rerun that it is about.
"""

from __future__ import annotations

import hmac
import re
from typing import Literal, get_args

from gpumemnet.records import frozen
from slurm_plugin.core.comments.signed_comment import sign
from slurm_plugin.core.records.queue_position import QueuePosition, position_in, position_values
from slurm_plugin.core.text import one_line
from slurm_plugin.core.units import from_mib, to_mib_up

NoteEvent = Literal["booked", "recovered", "requeued", "woken", "ended", "failed", "warned"]
RecoveryCause = Literal["estimate", "victim"]
_EVENTS: tuple[NoteEvent, ...] = get_args(NoteEvent)
_FAULTS: tuple[RecoveryCause, ...] = get_args(RecoveryCause)
_NOTE = re.compile(r"rad: ([a-z-]+)((?: [a-z_]+=[0-9]{1,12})*)(?: -(?: (.*))?)?", re.DOTALL)
_SEAL = re.compile(r"(.*) sig:([0-9a-f]{16})", re.DOTALL)
_VALUE = re.compile(r"([a-z_]+)=([0-9]+)")
PERCENT = 100
_DETAIL_LIMIT = 300
"""A line of an error message needs no more characters than this."""
_BYTES_LIMIT = 960
"""Limit of a note without its signature: Slurm keeps 1,024 bytes, and a detail may be in any script."""


@frozen
class Note:
    """One note.

    Attributes:
        event: "recovered": requeued after running out of memory. "requeued": requeued because no GPU was free.
            "woken": such a job need not wait until its start delay is over.
            "booked": accepted at submission. "ended": ran to its end. "failed": ended otherwise.
            "warned": rad-monitor reported it (guard/).
        start_in_s: Seconds that the job is to wait in the queue; None if it does not return there.
        restart: Restart count of the rerun that waits; None if it is not stated.
        estimate_bytes: The estimate before the run; None if there was none.
        peak_bytes: Highest GPU memory that the monitor saw; None without a monitor.
        smact: SM activity that the job would have alone, from the monitor (0 to 1); None if not reported.
        ran_s: For how long it was seen on a GPU; None if that was not seen, or does not matter.
        fault: Cause of a recovered job's end, if it was not the user's fault: RAD's "estimate", or it was a "victim";
            then radd may boost its priority. None if it gets no boost.
        position: Queue position of a requeued job; None if unknown, or it does not matter.
        server_ends: How often the job was rerun by now because an MPS server ended for an unknown reason; None for
            never. Notes of later reruns keep the count.
        detail: A sentence for display.
    """

    event: NoteEvent
    start_in_s: int | None = None
    restart: int | None = None
    estimate_bytes: int | None = None
    peak_bytes: int | None = None
    smact: float | None = None
    ran_s: int | None = None
    fault: RecoveryCause | None = None
    position: QueuePosition | None = None
    server_ends: int | None = None
    detail: str = ""


def format_note(note: Note) -> str:
    """Return the text of a note.

    >>> format_note(Note(event="requeued", start_in_s=15, detail="no idle GPU"))
    'rad: requeued start_in_s=15 - no idle GPU'
    """
    values = {
        "estimate_mib": None if note.estimate_bytes is None else to_mib_up(note.estimate_bytes),
        "peak_mib": None if note.peak_bytes is None else to_mib_up(note.peak_bytes),
        "smact_pct": None if note.smact is None else round(note.smact * PERCENT),
        "ran_s": note.ran_s,
        "start_in_s": note.start_in_s,
        "restart": note.restart,
        "fault": None if note.fault is None else _FAULTS.index(note.fault) + 1,
        **position_values(note.position),
        "server_ends": note.server_ends,
    }
    words = [
        f"rad: {note.event}",
        *(f"{name}={value}" for name, value in values.items() if value is not None),
    ]
    space = _BYTES_LIMIT - sum(len(word) + 1 for word in (*words, "-"))
    detail = one_line(note.detail, _DETAIL_LIMIT).encode()[:space].decode(errors="ignore").rstrip()
    return " ".join([*words, "-", detail] if detail else words)


def signed_note(note: Note, *, job_id: int, user_id: int, key: bytes | None) -> str:
    """Return the text of a note that has effect.

    Args:
        note: The note; its restart is part of what is signed.
        job_id: The only job for which it counts.
        user_id: The job's user, likewise.
        key: The cluster's key; without it the note is for display only.
    """
    text = format_note(note)
    if key is None:
        return text
    text = text if " - " in text else f"{text} -"
    return f"{text} sig:{sign(_message(text, job_id, user_id), key)}"


def read_signed(text: str, *, job_id: int, user_id: int, key: bytes | None) -> Note | None:
    """Return the note in an AdminComment that a part of RAD signed for this job; None if there is none.

    Args:
        text: The AdminComment.
        job_id: The job, as Slurm knows it.
        user_id: The job's user, as Slurm knows it.
        key: The cluster's key; without it no note counts.
    """
    match = _SEAL.fullmatch(text)
    if match is None or key is None:
        return None
    if not hmac.compare_digest(match[2], sign(_message(match[1], job_id, user_id), key)):
        return None
    note = read_note(text)
    return note if note is not None and note.restart is not None else None


def _message(text: str, job_id: int, user_id: int) -> str:
    return f"note|{job_id}|{user_id}|{text}"


def read_note(text: str) -> Note | None:
    """Return the note in an AdminComment as it is shown, signed or not; None if there is none of RAD's."""
    seal = _SEAL.fullmatch(text)
    match = _NOTE.fullmatch(text if seal is None else seal[1])
    event = next((each for each in _EVENTS if match and each == match[1]), None)
    if match is None or event is None:
        return None
    values = {name: int(value) for name, value in _VALUE.findall(match[2])}
    estimate_mib, peak_mib = values.get("estimate_mib"), values.get("peak_mib")
    smact_pct = values.get("smact_pct")
    return Note(
        event=event,
        start_in_s=values.get("start_in_s"),
        restart=values.get("restart"),
        estimate_bytes=None if estimate_mib is None else from_mib(estimate_mib),
        peak_bytes=None if peak_mib is None else from_mib(peak_mib),
        smact=None if smact_pct is None else smact_pct / PERCENT,
        ran_s=values.get("ran_s"),
        fault=dict(enumerate(_FAULTS, start=1)).get(values.get("fault", 0)),
        position=position_in(values),
        server_ends=values.get("server_ends"),
        detail=match[3] or "",
    )
