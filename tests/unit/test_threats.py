"""Each row of the threat model names tests, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
TEXT = (CHECKOUT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_named_test_exists() -> None:
    missing = []
    for path, name in NAMED.findall(TEXT):
        file = CHECKOUT / path
        if not file.is_file() or (name and f"def {name}(" not in file.read_text(encoding="utf-8")):
            missing.append(f"{path}::{name}")
    assert NAMED.search(TEXT) and not missing


def test_every_row_of_an_attempt_names_what_shows_it() -> None:
    bare = [
        line
        for line in TEXT.splitlines()
        if re.match(r"\| (user|other user|admin|network|machine) \|", line)
        and not NAMED.search(line)
        and not any(mark in line for mark in ("`bench/fuzz.py", "`results/", "| the same |", "| open |"))
    ]
    assert not bare
