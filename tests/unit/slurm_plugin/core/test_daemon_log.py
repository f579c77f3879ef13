from __future__ import annotations

import logging
import sys

from slurm_plugin.core.daemon_log import OneLineFormatter


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
