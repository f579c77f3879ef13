"""Ends of scripts that must not be mistaken for others: slow ends, limits of a trace, other folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from traced import MAIN, estimated

pytest.importorskip("torch")

from gpumemnet.tracing.script import start
from gpumemnet.tracing.script.shield import shields

LINGERS = """
    import sys, time, torch

    class Late:
        def __del__(self, sleep=time.sleep):  # called as Python ends, when modules are gone
            sleep(1)

    sys.late = Late()
    print("evaluated")
"""
FAILS = "import os\nos.chdir('/')\nimport torch\nraise ValueError('no such column')\n"
NO_DRIVER = "import torch\nraise RuntimeError('Found no NVIDIA driver on your system.')\n"
REFUSED = "import torch\nopen('earlier', 'w')\n"


def test_a_python_that_ends_slowly_is_not_taken_for_one_without_the_hook(tmp_path: Path) -> None:
    done = estimated(tmp_path, LINGERS)
    assert done.returncode == 2
    assert "its last words: evaluated" in done.stderr


@pytest.mark.parametrize("pwd", [None, "/", "same"], ids=["no PWD", "PWD of another folder", "PWD"])
def test_a_place_is_relative_to_the_folder_of_the_command(tmp_path: Path, pwd: str | None) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text(FAILS)
    environment = {name: value for name, value in os.environ.items() if name != "PWD"}
    environment |= {} if pwd is None else {"PWD": str(tmp_path) if pwd == "same" else pwd}
    command = [sys.executable, "-c", MAIN, "--", sys.executable, "sub/train.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment, check=False
    )
    assert done.stderr.endswith(": ValueError: no such column, at sub/train.py:4\n")


def test_a_limit_of_the_trace_is_not_said_to_be_the_scripts_own_failure(tmp_path: Path) -> None:
    done = estimated(tmp_path, NO_DRIVER)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "rad-estimate: the script could not be traced: it calls the CUDA driver itself"
    )


def test_a_refused_file_is_not_said_to_be_the_scripts_own_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(REFUSED)
    (tmp_path / "earlier").write_text("trained for a week")
    monkeypatch.chdir(tmp_path)
    found = start.run([sys.executable, "train.py"], environment=os.environ, ways=(shields.Refusing,))
    assert isinstance(found, start.Untraced)
    assert found.why.startswith("PermissionError: ")
    assert "at train.py:2; a trace changes no files" in found.why
    assert (tmp_path / "earlier").read_text() == "trained for a week"
