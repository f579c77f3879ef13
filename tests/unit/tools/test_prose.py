from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from tools.lint import PYTHON_PACKAGES, texts
from tools.prose import blanked, private_names, write_prose

CHECKOUT = Path(__file__).resolve().parents[3]
SOURCE = '''"""Where nobody is.

Attributes:
    nobody: A name.
"""

nobody = {"told": 1}  # told here
text = (
    f"it was told {nobody} in `told` of told.py"
)
'''


def test_only_what_people_read_is_left_and_it_stays_where_it_was() -> None:
    found = blanked(SOURCE)
    assert [len(line) for line in found.splitlines()] == [len(line) for line in SOURCE.splitlines()]
    words = [(number, line.split()) for number, line in enumerate(found.splitlines(), 1) if line.strip()]
    assert words[0] == (1, ["Where", "nobody", "is."])
    assert ("nobody" in found.splitlines()[3], "name." in found.splitlines()[3]) == (False, True)
    assert [line.split().count("told") for line in found.splitlines()] == [0, 0, 0, 0, 0, 0, 1, 0, 1, 0]


def test_a_package_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/a.py").write_text("x = 1  # nobody\n")
    (tmp_path / "prose").mkdir()
    (tmp_path / "prose/old.py").touch()
    write_prose(tmp_path, ["package"], tmp_path / "prose")
    assert [path.name for path in (tmp_path / "prose").rglob("*.py")] == ["a.py"]
    assert (tmp_path / "prose/package/a.py").read_text().split() == ["#", "nobody"]


def test_the_manual_and_the_site_s_files_are_checked() -> None:
    assert {"README.md", "docs/user.md", "gres_conf/rad.toml", "gres_conf/systemd/radd.service"} <= set(
        texts(CHECKOUT)
    )


IN_NAMES = {"anew", "nobody"}
"""Words that only texts avoid; a Unix user is called nobody."""


@pytest.mark.slow
def test_no_name_in_the_code_has_a_private_word() -> None:
    words = {
        line.split("->")[0] for line in (CHECKOUT / "tools/words.txt").read_text().splitlines()
    } - IN_NAMES
    found = [
        f"{path.relative_to(CHECKOUT)}:{line}: {name}"
        for package in (*PYTHON_PACKAGES, "tests")
        for path in sorted((CHECKOUT / package).rglob("*.py"))
        for line, name in private_names(path.read_text(), words)
    ]
    assert found == []


def test_words_have_other_words_and_stand_in_order() -> None:
    lines = (CHECKOUT / "tools/words.txt").read_text().splitlines()
    words = dict(line.split("->") for line in lines)
    assert len(words) == len(lines) and list(words) == sorted(words)
    assert all(better.endswith(",") for better in words.values()), "codespell -w must not choose"


@pytest.mark.parametrize(
    ("text", "codes"), [("A job ends.\n", 0), ("Nobody ends.\n", 65), ("Teh `nobody`.\n", 65)]
)
def test_words_are_refused(tmp_path: Path, text: str, codes: int) -> None:
    pytest.importorskip("codespell_lib")
    (tmp_path / "a.md").write_text(text)
    options = configparser.ConfigParser()
    options.read(CHECKOUT / "setup.cfg")
    assert options["codespell"]["dictionary"] == "tools/words.txt,-"
    done = subprocess.run(
        [sys.executable, "-Im", "codespell_lib", str(tmp_path / "a.md")],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
    )
    assert done.returncode == codes, done.stdout
