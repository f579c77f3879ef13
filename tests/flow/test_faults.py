"""A GPU fault on an MPS server of two users, with rad-monitor and Epilogs; simulated GPUs, no Slurm."""

from __future__ import annotations

import json
import os
import re
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from flow.test_guard import OVERRUNNER, USERS, VICTIM, Node, eventually, folder
from flow.test_node_hooks import SHARED, served_by

from lab.bare_node import KEY
from lab.simulated_mps import end_server
from slurm_plugin.core.comments.signed_comment import signed_booking
from slurm_plugin.mps.quarantine import faults_of

__all__ = ["folder"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes as other users")

CULPRIT = OVERRUNNER


def pid_of(node: Node, process: subprocess.Popen[bytes]) -> int:
    """Return the process that holds memory below a job's slurmstepd."""
    pids = [int(path.stem) for path in (node.folder / "gpus" / "processes").glob("*.json")]
    return next(pid for pid in pids if process.pid in parents(pid))


def parents(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.add(pid)
    return found


def endings(node: Node, job_id: int) -> list[tuple[str, str]]:
    return [(event, detail) for hook, event, detail in node.events(job_id) if hook == "epilog"]


def faults(node: Node, *jobs: int) -> int:
    """Let the first of these jobs fault once all of them run and are sampled; return how many processes ended."""
    processes = {job: node.start(job, 1.0) for job in jobs}
    for job in jobs:
        eventually("it works", lambda job=job: "holds 1.0" in node.said(job))  # type: ignore[misc]
    window = node.folder / "run" / "monitor" / "window.json"
    before_s = json.loads(window.read_text())["time_s"]
    eventually("two samples", lambda: json.loads(window.read_text())["time_s"] > before_s + 1.5)
    ended = end_server(node.folder / "run", node.folder / "gpus", pid_of(node, processes[jobs[0]]))
    for process in processes.values():
        eventually("its client failed", lambda process=process: process.poll() is not None)  # type: ignore[misc]
    return len(ended)


def test_a_fault_blames_none_of_two_jobs_and_the_one_that_faults_alone(folder: Path) -> None:
    with ExitStack() as stack:
        node = Node(folder, stack, partition='mps_server = "gpu"')
        assert faults(node, CULPRIT, VICTIM) == 2, "both were on one server"
        for job in (VICTIM, CULPRIT):
            node.run("epilog", job, SLURM_JOB_EXIT_CODE=str(1 << 8))
            (event, detail), *more = endings(node, job)
            assert event == "victim" and "an invalid memory access ended all 2 jobs" in detail
            assert [kind for kind, _ in more][:1] == ["not reported"], (
                "Slurm was to run it again, and is not there"
            )
            (fault,) = faults_of(folder / "run", USERS[job])
            assert (fault.job_id, fault.certain) == (job, False)

        own = signed_booking(replace(SHARED, own_server=True), user_id=USERS[CULPRIT], key=KEY)
        again = {"SLURM_JOB_COMMENT": own, "SLURM_JOB_RESTART_COUNT": "1"}
        node.run("prolog", CULPRIT, **again)
        assert served_by(node, CULPRIT) == f"j{CULPRIT}"
        assert faults(node, CULPRIT) == 1
        node.run("epilog", CULPRIT, SLURM_JOB_EXIT_CODE=str(1 << 8), **again)
        node.run("prolog", VICTIM, SLURM_JOB_RESTART_COUNT="1")
        assert served_by(node, VICTIM) == str(USERS[VICTIM])
        said = [detail for hook, _, detail in node.events(VICTIM) if hook == "prolog"]
        shared = (
            "no MPS server with other users until .*: a GPU fault ended the one that its user's job shared"
        )
        assert any(re.search(shared, detail) for detail in said)
    event, detail = endings(node, CULPRIT)[-2]
    assert event == "failed" and "its GPU fault ended its MPS server; until" in detail
    certain = [one.restart for one in faults_of(folder / "run", USERS[CULPRIT]) if one.certain]
    assert certain == [1]
