"""The log of a daemon: events, as hooks write them (core/logs/events.py).

Each line goes into events.jsonl as JSON, for programs, and to standard error as text, which systemd keeps.

    log.info("job %d: may start", 12, extra=about(EventKind.MAY_START, job_id=12))
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from gpumemnet.records import field, frozen
from slurm_plugin.core.files.append_log import append_line
from slurm_plugin.core.logs.events import Entry, EventKind, Fact, LogEvent, to_line
from slurm_plugin.core.logs.hook_log import EVENTS
from slurm_plugin.core.process.systemd import priority_prefix, writes_to_journal
from slurm_plugin.core.text import one_line

TIMED = "%(asctime)s %(levelname)s %(name)s: %(message)s"
PLAIN = "%(name)s: %(message)s"
"""How a line looks on standard error."""

_LONGEST = 4000


@frozen
class _About:
    kind: EventKind
    job_id: int
    facts: dict[str, Fact] = field(default_factory=dict)


def about(kind: EventKind, *, job_id: int = 0, **facts: Fact) -> dict[str, object]:
    """Return the kind and facts of a line, for a logger's `extra`.

    Args:
        kind: What happened.
        job_id: The job; 0 if it is about none.
        facts: Values for programs, by name, such as `user_id`.
    """
    return {"about": _About(kind=kind, job_id=job_id, facts=facts)}


class OneLineFormatter(logging.Formatter):
    """Formats a record on one printable line; a traceback keeps its lines, each of them printable."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        lines = super().format(record).splitlines() or [""]
        if not record.exc_info:
            return one_line(" ".join(lines), _LONGEST)
        return "\n".join(_indent_of(line) + one_line(line, _LONGEST) for line in lines)


def _indent_of(line: str) -> str:
    """Return the spaces that a line begins with."""
    return " " * (len(line) - len(line.lstrip(" ")))


class JournalFormatter(OneLineFormatter):
    """Prefixes each line with its level, for `journalctl -p warning` and LogLevelMax=; the journal has the time."""

    def __init__(self) -> None:
        """Prepare."""
        super().__init__(PLAIN)

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        prefix = priority_prefix(record.levelno)
        return "\n".join(prefix + line for line in super().format(record).splitlines())


class EventsHandler(logging.Handler):
    """Appends each line as an event; if the file cannot be written, only standard error has it."""

    def __init__(self, folder: Path, daemon: str) -> None:
        """Prepare.

        Args:
            folder: paths.log.
            daemon: "radd" or "monitor".
        """
        super().__init__()
        self._path = folder / EVENTS
        self._daemon = daemon

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        with suppress(OSError):
            append_line(self._path, to_line(entry_of(record, self._daemon)))


def entry_of(record: logging.LogRecord, daemon: str) -> Entry:
    """Return the event of a logging record.

    Args:
        record: As `logging` made it.
        daemon: Name of the daemon that logs.
    """
    found = getattr(record, "about", None) or _About(kind=_kind_of(record), job_id=0)
    detail = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        detail += f": {record.exc_info[1]!r}"
    return Entry(
        time_s=record.created,
        hook=daemon,
        job_id=found.job_id,
        restart=0,
        after_ms=max(0, round(record.relativeCreated)),
        event=LogEvent(
            kind=found.kind, detail=detail, facts={"level": record.levelname.lower(), **found.facts}
        ),
    )


def _kind_of(record: logging.LogRecord) -> EventKind:
    if record.exc_info:
        return EventKind.BUG
    return EventKind.TROUBLE if record.levelno >= logging.WARNING else EventKind.NOTE


def log_to_stderr(form: str = TIMED) -> None:
    """Let every logger of this process write to standard error.

    Args:
        form: TIMED or PLAIN; the journal gets a separate form.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JournalFormatter() if writes_to_journal(os.environ) else OneLineFormatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def log_events(folder: Path, daemon: str) -> None:
    """Let every logger of this process write events, too.

    Args:
        folder: paths.log.
        daemon: "radd" or "monitor".
    """
    logging.getLogger().addHandler(EventsHandler(folder, daemon))
