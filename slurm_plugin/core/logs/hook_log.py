"""The log of a hook: each event goes into events.jsonl for programs and into HOOK.log as text."""

from __future__ import annotations

import contextlib
from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.files.append_log import append_line
from slurm_plugin.core.logs.events import Entry, EventKind, Fact, LogEvent, as_text, to_line

EVENTS = "events.jsonl"
"""In paths.log; the hooks of all jobs of a node append to it."""


class HookLog:
    """The log of one hook; errors while writing it are ignored.

    Args:
        folder: paths.log.
        hook: "prolog", "epilog", ...
        job_id: The job that every line names.
        restart: How often the job was requeued before.
        clock: Time.
        start_s: When the hook began, on the monotonic clock; None means now.
    """

    def __init__(
        self,
        folder: str,
        hook: str,
        *,
        job_id: int,
        clock: Clock,
        restart: int = 0,
        start_s: float | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._hook, self._job_id, self._restart = hook, job_id, restart
        self._clock = clock
        self._start_s = clock.monotonic_s() if start_s is None else start_s

    def age_s(self) -> float:
        """Return for how long the hook has run."""
        return self._clock.monotonic_s() - self._start_s

    def write(self, kind: EventKind, detail: str = "", **facts: Fact) -> None:
        """Log what happened: a sentence for display, facts for programs.

        Args:
            kind: What kind of event.
            detail: The sentence; empty if the kind says all.
            **facts: Numbers and texts by name, in the units of their names.
        """
        self.write_event(LogEvent(kind=kind, detail=detail, facts=facts))

    def write_event(self, event: LogEvent) -> None:
        """Log an event."""
        entry = Entry(
            time_s=round(self._clock.now_s(), 3),
            hook=self._hook,
            job_id=self._job_id,
            restart=self._restart,
            after_ms=max(0, round((self._clock.monotonic_s() - self._start_s) * 1000)),
            event=event,
        )
        with contextlib.suppress(OSError):
            append_line(self._folder / EVENTS, to_line(entry))
        if event.kind != EventKind.END:
            with contextlib.suppress(OSError):
                append_line(self._folder / f"{self._hook}.log", as_text(entry).encode(errors="replace"))
