from __future__ import annotations

from pathlib import Path

import pytest
from golden_texts import Golden


def test_a_change_fails_and_shows_the_changed_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    golden = Golden(tmp_path, overwrite=False)
    golden("a.txt", "one\ntwo\nthree")
    with pytest.raises(pytest.fail.Exception, match=r"(?s)-two\n\+2\n.*--overwrite"):
        golden("a.txt", "one\n2\nthree")
    with pytest.raises(pytest.fail.Exception, match="lines more"):
        golden("a.txt", "x\n" * 100)


def test_a_text_without_a_file_fails_until_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"\+new"):
        Golden(tmp_path, overwrite=False)("b/c.txt", "new")
    Golden(tmp_path, overwrite=True)("b/c.txt", "new")
    Golden(tmp_path, overwrite=False)("b/c.txt", "new")
