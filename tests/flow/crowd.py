"""Many hooks at once, each in a process of its own; all begin when the last one is there.

    python -I crowd.py prolog|epilog JOBS [kill] -- --config rad.toml

JOBS is a file with one environment for each hook, as JSON. Prints how many hooks ended with each status. The modules
are loaded before the forks, and a hook's time counts from when all begin: so all meet at the ledger. With `kill`, every
child of a hook is killed at a call drawn at random, which may lie beyond its end; half of them before they have done
anything, so that of two hundred hooks some leave all that they should have given back.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from slurm_plugin.core.hooks import run, supervise
from slurm_plugin.core.process.child import monotonic_s

UNHURRIED = supervise.HookTimeLimits(work_s=120, end_s=180)
"""For any machine: what is shown then holds without exception."""

MOST_CALLS = 12_000
"""Twice as many calls of built-in functions as a hook in a crowd makes whose modules are loaded."""

EARLY_CALLS = 100
"""By then no hook has read rad.toml."""


def main() -> None:
    name, jobs, *options = sys.argv[1:]
    sys.argv = [name, *options[options.index("--") + 1 :]]
    supervise.LIMITS.update(dict.fromkeys(supervise.LIMITS, UNHURRIED))
    hook, _ = importlib.import_module(f"{name}.__main__"), importlib.import_module(f"{name}.hook")
    run.hook_started_s = monotonic_s  # type: ignore[attr-defined]
    gc.freeze()
    gate_out, gate_in = os.pipe()
    children = []
    for env in json.loads(Path(jobs).read_text()):
        child = os.fork()
        if child == 0:
            status = 99
            try:
                os.close(gate_in)
                os.read(gate_out, 1)
                os.environ.clear()
                os.environ.update(env)
                if "kill" in options:
                    kill_children()
                status = hook.main()
                sys.stderr.flush()
            finally:
                os._exit(status)
        children.append(child)
    os.close(gate_out)
    os.close(gate_in)
    statuses = Counter(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    print(json.dumps(statuses))


def kill_children() -> None:
    """Let each process that comes from this one be killed in the middle of its work."""
    hook = os.getpid()
    left: dict[int, int] = {}

    def watch(frame: FrameType, event: str, call: object) -> None:
        pid = os.getpid()
        if event == "c_call" and pid != hook:
            if pid not in left:
                draw = random.Random(pid)
                left[pid] = draw.randint(1, draw.choice((EARLY_CALLS, MOST_CALLS)))
            left[pid] -= 1
            if left[pid] == 0:
                os.kill(pid, signal.SIGKILL)

    sys.setprofile(watch)


main()
