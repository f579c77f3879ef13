"""One line of `rad doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_plugin.admin.doctor.fixes import Deed, shown

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
        deeds: The same exactly, as lines of files and commands; empty where a person must choose.
    """

    level: Level
    subject: str
    text: str
    fix: str = ""
    deeds: tuple[Deed, ...] = ()


def ok(subject: str, text: str) -> Finding:
    """Return a finding that needs nothing.

    Args:
        subject: What was looked at.
        text: What was found, in a sentence.
    """
    return Finding(level="ok", subject=subject, text=text)


Fix = str | Deed | tuple[Deed, ...]
"""Words, or what is to be done exactly, which is then shown as it is."""


def warn(subject: str, text: str, fix: Fix) -> Finding:
    """Return a finding that could be better.

    Args:
        subject: What was looked at.
        text: What was found, in a sentence.
        fix: What to do about it.
    """
    return _finding("warn", subject, text, fix)


def fail(subject: str, text: str, fix: Fix) -> Finding:
    """Return a finding that must be mended.

    Args:
        subject: What was looked at.
        text: What was found, in a sentence.
        fix: What to do about it.
    """
    return _finding("fail", subject, text, fix)


def unseen(subject: str, text: str) -> Finding:
    """Return what cannot be told from here.

    Args:
        subject: What was looked at.
        text: What was found, in a sentence.
    """
    return Finding(level="unseen", subject=subject, text=text)


def _finding(level: Level, subject: str, text: str, fix: Fix) -> Finding:
    if isinstance(fix, str):
        return Finding(level=level, subject=subject, text=text, fix=fix)
    deeds = fix if isinstance(fix, tuple) else (fix,)
    return Finding(level=level, subject=subject, text=text, fix=shown(deeds), deeds=deeds)
