"""Events of hooks and daemons: one line of JSON each, from which the text log and the metrics are derived.

    {"v":1,"time_s":1772366400.0,"hook":"prolog","job":12,"restart":0,"after_ms":43,"event":"placed",
     "detail":"booking shared: GPU-... magm: 120.1 GiB free","policy":"magm","gpus":["GPU-..."]}

The names up to `detail`, a sentence for display, are in every line; further names are facts of that kind of event. A
reader skips lines of another `v` and unknown names. docs/monitoring.md has the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from gpumemnet.records import field, frozen
from slurm_plugin.core.text import one_line

VERSION = 1

LONGEST_DETAIL = 1500
_LONGEST_FACT = 300
_OWN_NAMES = ("v", "time_s", "hook", "job", "restart", "after_ms", "event", "detail")

Fact = str | int | float | bool | None | tuple[str, ...]


class EventKind(str, Enum):
    """Every kind of event; the value appears in the log, in the metrics and on dashboards."""

    __str__ = str.__str__  # as enum.StrEnum has it, which Python 3.10 lacks

    PLACED = "placed"
    WOULD_PLACE = "would place"
    REQUEUED = "requeued"
    NOT_REQUEUED = "not requeued"
    WOKEN = "woken"
    NOT_WOKEN = "not woken"
    UNCHANGED = "unchanged"
    WITHOUT_MPS = "runs without MPS"

    OK = "ok"
    FAILED = "failed"
    GPU_OOM = "gpu-oom"
    HOST_OOM = "host-oom"
    CANCELLED = "cancelled"
    VICTIM = "victim"
    OVERRUN = "overrun"
    IDLE = "idle"
    RUNS_AGAIN = "runs again"
    WOULD_RUN_AGAIN = "would run again"
    NOT_RUN_AGAIN = "not run again"
    NO_RECOVERY = "no recovery"
    NOT_REPORTED = "not reported"

    UNMANAGED = "unmanaged"
    """A process without an allocation uses a GPU that a job has exclusively."""

    SUBMITTED = "submitted"
    UNDECIDED = "undecided"
    CHANGED = "changed"
    RECEIVED = "received"
    MAY_START = "may start"
    PRIORITY_BOOSTED = "priority boosted"
    PRIORITY_RESTORED = "priority restored"
    RECONCILED = "reconciled"
    MORE_TIME = "more time"
    NOTE = "note"
    TROUBLE = "trouble"
    BUG = "bug"
    """The kinds from SUBMITTED on belong to the daemons; the last three are for lines of no other kind."""

    NOT_RELEASED = "not released"
    OUT_OF_TIME = "out of time"
    LAST_GOOD_SETTINGS = "last good settings"
    PATTERNS_LEFT_OUT = "patterns left out"
    END = "end"
    """The hook's last event: its `after_ms` is how long the hook took. It is not shown as text."""


@frozen
class LogEvent:
    """One thing that happened.

    Attributes:
        kind: What.
        detail: A sentence for display.
        facts: Values for programs, by name.
    """

    kind: EventKind
    detail: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)


@frozen
class Entry:
    """An event with its context, as it is logged.

    Attributes:
        time_s: Seconds since the epoch.
        hook: Which program: "prolog", "epilog", "monitor", "radd".
        job_id: Slurm's job id; 0 if it is about none.
        restart: How often the job was requeued before.
        after_ms: Milliseconds since the program was started.
        event: What happened.
    """

    time_s: float
    hook: str
    job_id: int
    restart: int
    after_ms: int
    event: LogEvent


def to_line(entry: Entry) -> bytes:
    """Return a line of JSON, in ASCII, without its end; at most some 10,000 characters."""
    row: dict[str, Any] = {
        "v": VERSION,
        "time_s": round(entry.time_s, 3),
        "hook": entry.hook,
        "job": entry.job_id,
        "restart": entry.restart,
        "after_ms": entry.after_ms,
        "event": entry.event.kind.value,
        "detail": one_line(entry.event.detail, LONGEST_DETAIL),
    }
    row |= {
        name: one_line(value, _LONGEST_FACT) if isinstance(value, str) else value
        for name, value in entry.event.facts.items()
        if name not in _OWN_NAMES
    }
    return json.dumps(row, separators=(",", ":")).encode("ascii")


def from_line(line: bytes) -> Entry | None:
    """Return the event of a line; None if it is damaged, of another version or of an unknown kind."""
    try:
        row = json.loads(line)
        if row["v"] != VERSION:
            return None
        return Entry(
            time_s=float(row["time_s"]),
            hook=str(row["hook"]),
            job_id=int(row["job"]),
            restart=int(row["restart"]),
            after_ms=int(row["after_ms"]),
            event=LogEvent(
                kind=EventKind(row["event"]),
                detail=str(row["detail"]),
                facts={name: _fact(value) for name, value in row.items() if name not in _OWN_NAMES},
            ),
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def as_text(entry: Entry) -> str:
    """Return the line of the text log."""
    time = datetime.fromtimestamp(entry.time_s).isoformat(timespec="milliseconds")
    detail = one_line(entry.event.detail, LONGEST_DETAIL)
    text = f"{entry.event.kind}: {detail}" if detail else str(entry.event.kind)
    return f"{time} job={entry.job_id} after={entry.after_ms}ms {text}"


def _fact(value: Any) -> Fact:
    return tuple(map(str, value)) if isinstance(value, list) else value
