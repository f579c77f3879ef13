from __future__ import annotations

import re
from pathlib import Path

import pytest
from golden_texts import Golden
from paths import CHECKOUT


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


ONE_OF_MANY = re.compile(
    r"(?<![\w.,:/-])1 (?:whole )?(?:GPUs|days|jobs|nodes|rows|runs|shards|tasks|times|users)\b(?!   2 Jobs)"
)
"""A plural after one; `1 GPUs   2 Jobs` are the numbers of rad top's screens."""


def test_one_is_followed_by_a_singular() -> None:
    texts = [path for path in (CHECKOUT / "tests" / "golden").rglob("*") if path.suffix in (".txt", ".md")]
    found = [(path.name, ONE_OF_MANY.findall(path.read_text("utf-8"))) for path in texts]
    assert texts and [each for each in found if each[1]] == []
