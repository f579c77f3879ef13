"""Each row of the tables of attacks and faults names tests, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
TABLES = ("security-threats.md", "security-faults.md")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
SHOWN_BY = re.compile(rf"{NAMED.pattern}|`bench/[\w/]+\.py|`tests/gpu/results/|\| open \|$")


@pytest.mark.parametrize("page", (*TABLES, "security.md"))
def test_every_named_test_exists(page: str) -> None:
    text = (CHECKOUT / "docs" / page).read_text(encoding="utf-8")
    missing = []
    for path, name in NAMED.findall(text):
        file = CHECKOUT / path
        if not file.is_file() or (name and f"def {name}(" not in file.read_text(encoding="utf-8")):
            missing.append(f"{path}::{name}")
    assert NAMED.search(text) and not missing


@pytest.mark.parametrize("page", TABLES)
def test_every_row_names_what_shows_it(page: str) -> None:
    lines = (CHECKOUT / "docs" / page).read_text(encoding="utf-8").splitlines()
    rows = [
        line
        for line, below in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("| ") and not below.startswith("|---")
    ]
    assert len(rows) > 20 and not [row for row in rows if not SHOWN_BY.search(row)]
