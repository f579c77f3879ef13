"""Golden texts: what people and programs read from us, kept as files under tests/golden/ so that a change is seen.

A test calls the fixture `golden` with a name and a text. Where both differ, the changed lines are printed; with
`--overwrite` the file is written again, and the difference is for the reviewer of the commit.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

MOST_LINES = 60
"""Of a difference; more is not read."""


class Golden:
    """Compares texts with their files."""

    def __init__(self, folder: Path, *, overwrite: bool) -> None:
        self._folder, self._overwrite = folder, overwrite

    def __call__(self, name: str, text: str) -> None:
        """Fail if a text is not what its file says.

        Args:
            name: The file below tests/golden/.
            text: What the program says now.
        """
        path = self._folder / name
        text = text.rstrip("\n") + "\n"
        if self._overwrite:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        if kept == text:
            return
        changed = difflib.unified_diff(
            kept.splitlines(), text.splitlines(), f"tests/golden/{name}", "now", n=1, lineterm=""
        )
        lines = list(changed)
        cut = [f"... and {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []
        pytest.fail(
            "\n".join([*lines[:MOST_LINES], *cut, "if that is meant: run this test again with --overwrite"]),
            pytrace=False,
        )
