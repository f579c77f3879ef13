"""A FIFO or a device in place of a file is refused at once, in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.timing import within

RAD = "from slurm_plugin.admin.cli import main; main()"
ESTIMATE = "from slurm_plugin.rad_estimate import main; main()"
RADD = "from slurm_plugin.radd.__main__ import main; main()"
CLUSTER = ("--gpu-memory-mib", "80000")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (RAD, ("doctor", "--config", "FIFO")),
        (RAD, ("reload", "--config", "FIFO")),
        (RAD, ("status", "--config", "FIFO")),
        (RAD, ("history", "--config", "FIFO")),
        (RAD, ("digest", "--config", "FIFO")),
        (RAD, ("learn", "--config", "FIFO")),
        (RAD, ("report", "7", "--config", "FIFO")),
        (RAD, ("simulate", "none", "--config", "FIFO", *CLUSTER)),
        (RAD, ("advise", "none", "--config", "FIFO", *CLUSTER)),
        (ESTIMATE, ("FIFO", "--batch-size", "8")),
        (ESTIMATE, ("job.sh", "--config", "FIFO")),
        (RADD, ("--config", "FIFO")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_no_command_waits_for_a_fifo(tmp_path: Path, program: str, words: tuple[str, ...]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH --gpus=1\n#RAD memory=4G\n")
    argv = [sys.executable, "-Ic", program, *(str(fifo) if word == "FIFO" else word for word in words)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=within(60), check=False)
    line = f"{fifo}: not a regular file; name a "
    if words[0] == "doctor":
        assert done.returncode == 1 and line in done.stdout
    else:
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert line in done.stderr
