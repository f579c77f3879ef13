from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tools import man


@pytest.mark.parametrize("name", man.PROGRAMS)
def test_a_man_page_names_every_option_and_command(name: str) -> None:
    page, program = man.pages()[f"{name}.1"], man.PROGRAMS[name]
    for parameter in program.params:
        for option in parameter.opts:
            if option.startswith("--"):
                assert option.replace("-", "\\-") in page, option
    for command in getattr(program, "commands", {}):
        assert f".SS {name} {command}" in page
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS"):
        assert f"\n.SH {section}\n" in page


def test_groff_has_nothing_to_complain_of(tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not here")
    man.main(tmp_path)
    for page in sorted((tmp_path / "share" / "man" / "man1").iterdir()):
        argv = ["groff", "-man", "-Tascii", "-ww", "-P-c", str(page)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        if page.name == "rad-estimate.1":
            assert "rad-estimate job.sh --sweep" in done.stdout


def test_each_shell_has_a_completion_for_each_program(tmp_path: Path) -> None:
    man.main(tmp_path)
    text = (tmp_path / "share/bash-completion/completions/rad-estimate").read_text()
    assert "_RAD_ESTIMATE_COMPLETE=bash_complete" in text
    assert len(man.completions()) == 3 * len(man.PROGRAMS)
