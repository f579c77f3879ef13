"""Subjects of commits have at most 72 characters, as CONTRIBUTING.md says."""

from __future__ import annotations

import subprocess

import pytest
from paths import CHECKOUT

LONGEST = 72
SINCE = "c4f72e97"
"""Commits up to this one are not checked."""


def too_long(subjects: str) -> list[str]:
    """Return the subjects, one a line, that have too many characters."""
    return [line for line in subjects.splitlines() if len(line) > LONGEST]


def test_subjects_are_short() -> None:
    command = ["git", "log", "--no-merges", "--format=%s", f"{SINCE}..HEAD"]
    try:
        said = subprocess.run(command, cwd=CHECKOUT, capture_output=True, encoding="utf-8", check=False)
    except OSError as exc:
        pytest.skip(f"git cannot be started: {exc}")
    if said.returncode:
        pytest.skip(f"no git history since {SINCE}: {said.stderr.strip()}")
    assert too_long(said.stdout) == []


def test_a_long_subject_is_found() -> None:
    assert too_long("é" * 72 + "\n" + "é" * 73) == ["é" * 73]
