"""One line of `rad doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail", "unseen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found.

    Attributes:
        level: "ok"; "warn": it works, but not as well as it could; "fail": jobs are left alone or go wrong;
            "unseen": cannot be told from this machine.
        subject: What was looked at.
        text: What was found.
        fix: What to do about it; "" for nothing.
    """

    level: Level
    subject: str
    text: str
    fix: str = ""


def ok(subject: str, text: str) -> Finding:
    """Return a finding that needs nothing.

    Args:
        subject: What was looked at.
        text: What was found, in a sentence.
    """
    return Finding(level="ok", subject=subject, text=text)


def warn(subject: str, text: str, fix: str) -> Finding:
    """Return a finding that could be better.

    Args:
        subject: What was looked at.
        text: What was found, in a sentence.
        fix: What to do about it.
    """
    return Finding(level="warn", subject=subject, text=text, fix=fix)


def fail(subject: str, text: str, fix: str) -> Finding:
    """Return a finding that must be mended.

    Args:
        subject: What was looked at.
        text: What was found, in a sentence.
        fix: What to do about it.
    """
    return Finding(level="fail", subject=subject, text=text, fix=fix)


def unseen(subject: str, text: str) -> Finding:
    """Return what cannot be told from here.

    Args:
        subject: What was looked at.
        text: What was found, in a sentence.
    """
    return Finding(level="unseen", subject=subject, text=text)
