"""A GPU fault on an MPS server of two users, with rad-monitor and Epilogs; simulated GPUs, no Slurm."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from flow.test_guard import THIEF, USERS, VICTIM, Node, eventually, folder

from lab.simulated_mps import end_server
from slurm_plugin.mps.quarantine import faults_of

__all__ = ["folder"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes as other users")

CULPRIT = THIEF


def pid_of(node: Node, process: subprocess.Popen[bytes]) -> int:
    """Return the process that holds memory below a job's slurmstepd."""
    held = [int(path.stem) for path in (node.folder / "gpus" / "processes").glob("*.json")]
    return next(pid for pid in held if process.pid in parents(pid))


def parents(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.add(pid)
    return found


def endings(node: Node, job_id: int) -> list[tuple[str, str]]:
    return [(event, detail) for hook, event, detail in node.events(job_id) if hook == "epilog"]


def test_a_fault_names_its_job_and_keeps_it_apart(folder: Path) -> None:
    with ExitStack() as stack:
        node = Node(folder, stack, partition='mps_server = "gpu"')
        jobs = {job: node.start(job, 1.0) for job in (CULPRIT, VICTIM)}
        for job in jobs:
            eventually("it works", lambda job=job: "holds 1.0" in node.said(job))  # type: ignore[misc]
        window = folder / "run" / "monitor" / "window.json"
        before_s = json.loads(window.read_text())["time_s"]
        eventually("two samples", lambda: json.loads(window.read_text())["time_s"] > before_s + 1.5)
        ended = end_server(folder / "run", folder / "gpus", pid_of(node, jobs[CULPRIT]))
        assert len(ended) == 2, "both were on one server"
        for process in jobs.values():
            eventually("its client failed", lambda process=process: process.poll() is not None)  # type: ignore[misc]
        for job in (VICTIM, CULPRIT):
            node.run("epilog", job, SLURM_JOB_EXIT_CODE=str(1 << 8))
    (event, detail), *more = endings(node, VICTIM)
    assert event == "victim" and f"job {CULPRIT}" in detail
    assert [kind for kind, _ in more][:1] == ["not reported"], "Slurm was to run it again, and is not there"
    (event, detail), *_ = endings(node, CULPRIT)
    assert event == "failed" and "its GPU fault ended 1 other job; until" in detail
    assert [one.job_id for one in faults_of(folder / "run", USERS[CULPRIT])] == [CULPRIT]
