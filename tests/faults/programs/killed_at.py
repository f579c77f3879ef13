"""Run a hook that is killed (-9) at a step: python -I killed_at.py MODULE [ARGUMENTS].

A step is each thing that the hook does to the outside: a file opened for writing, a folder made, a rename, a program
started (Python's audit events, PEP 578). Where a child does it, its parent is killed first. Job N is killed at its step
N modulo STEPS, once, and every third job not at all, so that a load of jobs meets every step.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

STEPS = 12
_DOES = {"os.mkdir", "os.rename", "os.remove", "os.chown", "os.rmdir", "subprocess.Popen", "os.posix_spawn"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def main() -> None:
    """Run the module with the fuse lit."""
    hook = os.getpid()
    job = int(os.environ.get("SLURM_JOB_ID", "0"))
    once = Path(__file__).with_name(f"{sys.argv[1]}.{job}.killed")
    left = job % STEPS + 1 if job % 3 and not once.exists() else 0
    once.touch()

    def step(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
        if left and (opens or event in _DOES):
            left -= 1
            if not left:
                os.kill(hook, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(step)
    module = sys.argv[1]
    del sys.argv[1]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
