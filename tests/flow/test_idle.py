"""A job that sleeps next to one that computes on a GPU, with rad-monitor and Epilogs; simulated GPUs, no Slurm."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path

import flow.test_guard
import pytest
from flow.test_guard import OVERRUNNER, VICTIM, Node, eventually, folder

from slurm_plugin.monitor.window import read_job
from tests.timing import within

__all__ = ["folder"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes as other users")

SLEEPS, WORKS = OVERRUNNER, VICTIM
IDLE_S = within(8)
"""The job that works must get a second of a processor in it, next to hooks of other tests at niceness -20."""
PROGRAM = f"""
import os
import sys
import time
from pathlib import Path
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus

works = os.environ["SLURM_JOB_ID"] == "{WORKS}"
SimulatedGpus(Path(sys.argv[1])).hold("GPU-0", GIB, smact=0.5 * works)
print("holds", flush=True)
while True:
    end_s = time.monotonic() + 0.8 * works
    while time.monotonic() < end_s:
        pass
    time.sleep(0.2)
"""


def events(node: Node, job_id: int, hook: str) -> list[tuple[str, str]]:
    return [(event, detail) for of, event, detail in node.events(job_id) if of == hook]


def test_the_job_that_sleeps_is_warned_and_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow.test_guard, "PROGRAM", PROGRAM)
    with ExitStack() as stack:
        node = Node(folder, stack, partition=f'idle_after = "{IDLE_S:g}s"\nidle_action = "end"')
        works, sleeps = node.start(WORKS), node.start(SLEEPS)
        for job in (WORKS, SLEEPS):
            eventually("it holds memory", lambda job=job: "holds" in node.said(job))  # type: ignore[misc]
        eventually("it is ended", lambda: sleeps.poll() is not None, 60)
        assert works.poll() is None
        usage = read_job(folder / "run", WORKS)
        assert usage is not None and usage.idle_s < IDLE_S
        assert [event for event, _ in events(node, SLEEPS, "monitor")] == ["idle", "idle"]
        first, second = (detail for _, detail in events(node, SLEEPS, "monitor"))
        assert "it is ended soon unless it computes" in first and second.endswith("stopped")
        node.run("epilog", SLEEPS, SLURM_JOB_EXIT_CODE="9")
    (event, detail), *more = events(node, SLEEPS, "epilog")
    assert event == "idle" and "used 1.0 GiB on GPU-0 and computed nothing for" in detail
    assert "runs again" not in dict(more)
    assert events(node, WORKS, "monitor") == []
    assert json.loads((folder / "run" / "monitor" / "incidents.json").read_text())
