"""Programs that measure for hours are not run, but they know the options that the documents give them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from documents import DATA, MEASURES, TRIALS, reported
from paths import CHECKOUT

pytest.importorskip("numpy")  # which most of these programs import

COMMANDS = [
    command
    for trials in TRIALS.values()
    for command, trial in trials.items()
    if trial in (MEASURES, DATA) and " --" in command
]


@pytest.mark.parametrize("command", dict.fromkeys([*COMMANDS, *reported()]))
def test_a_program_knows_what_the_documents_say_to_it(command: str) -> None:
    words = shlex.split(re.sub(r"[][]", "", command))
    python = next(at for at, word in enumerate(words) if Path(word).name in ("python", "python3"))
    environment = dict(word.split("=", 1) for word in words[:python])
    words = words[python + 1 :]
    program = words[: next(at for at, word in enumerate(words) if word.startswith("--"))]
    said = subprocess.run(
        [sys.executable, *program, "--help"],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    given = {word for word in words if word.startswith("--")}
    assert given <= set(re.findall(r"--[a-z-]+", said.stdout))
