from __future__ import annotations

import logging
import sys
from pathlib import Path

from slurm_plugin.core.logs.daemon_log import EventsHandler, OneLineFormatter, about
from slurm_plugin.core.logs.events import EventKind, from_line
from slurm_plugin.core.logs.hook_log import EVENTS


def formatted(message: str, *arguments: object, exc_info: object = None) -> str:
    record = logging.LogRecord("radd", logging.INFO, "x.py", 1, message, arguments, exc_info)  # type: ignore[arg-type]
    return OneLineFormatter("%(levelname)s %(name)s: %(message)s").format(record)


def test_what_a_user_names_can_neither_forge_a_line_nor_reach_a_terminal() -> None:
    text = formatted("submit partition=%s", "gpu\nERROR radd: forged \x1b[2J\u202e")
    assert text == "INFO radd: submit partition=gpu ERROR radd: forged ?[2J?"


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("bad \x1b[31m")
    except ValueError:
        text = formatted("it failed", exc_info=sys.exc_info())
    lines = text.splitlines()
    assert lines[0] == "INFO radd: it failed" and lines[-1] == "ValueError: bad ?[31m"
    assert any(line.startswith("  File ") for line in lines)
    assert all(line.isprintable() for line in lines)


def test_each_line_is_an_event_that_the_hooks_reader_understands(tmp_path: Path) -> None:
    log = logging.Logger("radd")
    log.addHandler(EventsHandler(tmp_path, "radd"))
    what = about(EventKind.PRIORITY_BOOSTED, job_id=12, user_id=4711, by=1000)
    log.info("job %d: priority raised\x1b[2J", 12, extra=what)
    log.warning("accounts not read: %s", "sacct exited 1")
    log.info("stopped")
    try:
        raise ValueError("bad")
    except ValueError:
        log.exception("a bug while answering")
    entries = [from_line(line) for line in (tmp_path / EVENTS).read_bytes().splitlines()]
    assert [(one.hook, one.job_id, one.event.kind, one.event.detail) for one in entries if one] == [
        ("radd", 12, EventKind.PRIORITY_BOOSTED, "job 12: priority raised?[2J"),
        ("radd", 0, EventKind.TROUBLE, "accounts not read: sacct exited 1"),
        ("radd", 0, EventKind.NOTE, "stopped"),
        ("radd", 0, EventKind.BUG, "a bug while answering: ValueError('bad')"),
    ]
    assert entries[0] is not None
    assert entries[0].event.facts == {"level": "info", "user_id": 4711, "by": 1000}


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    log = logging.Logger("radd")
    log.addHandler(EventsHandler(tmp_path / "log", "radd"))
    log.info("stopped")
