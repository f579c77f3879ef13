"""A finding of `rad doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_plugin.admin.doctor.fixes import FixAction, shown

Level = Literal["ok", "warn", "fail", "unseen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one check.

    Attributes:
        level: "ok"; "warn": works, but could be better; "fail": jobs pass through without RAD or fail;
            "unseen": cannot be determined from this machine.
        subject: What was checked.
        text: What was found.
        fix: How to fix it; "" for nothing.
        actions: The exact fix, as lines of files and commands; empty if a person must choose.
    """

    level: Level
    subject: str
    text: str
    fix: str = ""
    actions: tuple[FixAction, ...] = ()


def ok(subject: str, text: str) -> Finding:
    """Return a finding that needs no action.

    Args:
        subject: What was checked.
        text: What was found, in a sentence.
    """
    return Finding(level="ok", subject=subject, text=text)


Fix = str | FixAction | tuple[FixAction, ...]
"""Fix as text, or as exact actions, which are then shown as they are."""


def warn(subject: str, text: str, fix: Fix) -> Finding:
    """Return a finding about something that works but could be better.

    Args:
        subject: What was checked.
        text: What was found, in a sentence.
        fix: How to fix it.
    """
    return _finding("warn", subject, text, fix)


def fail(subject: str, text: str, fix: Fix) -> Finding:
    """Return a finding that must be fixed.

    Args:
        subject: What was checked.
        text: What was found, in a sentence.
        fix: How to fix it.
    """
    return _finding("fail", subject, text, fix)


def unseen(subject: str, text: str) -> Finding:
    """Return a finding that cannot be determined from here.

    Args:
        subject: What was checked.
        text: What was found, in a sentence.
    """
    return Finding(level="unseen", subject=subject, text=text)


def _finding(level: Level, subject: str, text: str, fix: Fix) -> Finding:
    if isinstance(fix, str):
        return Finding(level=level, subject=subject, text=text, fix=fix)
    actions = tuple(dict.fromkeys(fix if isinstance(fix, tuple) else (fix,)))
    return Finding(level=level, subject=subject, text=text, fix=shown(actions), actions=actions)
