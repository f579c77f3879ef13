"""A training script, run by `rad-estimate -- python train.py` on a GPU that is not there."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from gpumemnet.tracing.saved.record import SavedProfile

MAIN = "from gpumemnet.cli import main; main()"


def estimated(folder: Path, source: str, *words: str, options: tuple[str, ...] = ()) -> Any:
    """Write a script and trace it; return the finished process, whose stdout is JSON.

    Args:
        folder: The script's, and where it runs.
        source: The script's text, indented at will.
        *words: Its arguments.
        options: Of rad-estimate.
    """
    (folder / "train.py").write_text(textwrap.dedent(source))
    command = [sys.executable, "-c", MAIN, *options, "--json", "--", sys.executable, "train.py", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder, check=False)


def saved(folder: Path, source: str, *words: str) -> tuple[Any, SavedProfile]:
    """Trace a script; return its answer and the profile that it leaves in m.rad.

    Args:
        folder: As for `estimated`.
        source: As for `estimated`.
        *words: As for `estimated`.
    """
    done = estimated(folder, source, *words, options=("--save", "m.rad"))
    assert (done.returncode, done.stderr) == (0, "")
    return done, SavedProfile.from_text((folder / "m.rad").read_text(), path="m.rad")
