"""An overrunning job and its victim as processes of two users, with rad-monitor and Epilogs; simulated GPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from flow.test_node_hooks import SHARED, Hooks

from lab.bare_node import KEY
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.comments.signed_comment import signed_booking
from slurm_plugin.core.ledger.store import LedgerStore, boot_id
from tests.slurmstepd import step
from tests.timing import within

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes as other users")

OVERRUNNER, VICTIM = (
    10_000 + 2 * os.getpid() + k for k in range(2)
)  # tests at once see each others' processes
USERS = {OVERRUNNER: 4711, VICTIM: 4712}
STOPPED_S = 5.0
"""Two samples, and a busy machine."""

PROGRAM = """
import signal
import sys
from pathlib import Path
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import GpuFullError, SimulatedGpus

signal.signal(signal.SIGUSR1, lambda *_: sys.exit(1))  # lab/simulated_mps.py
gpus = SimulatedGpus(Path(sys.argv[1]))
for gib in sys.argv[2:]:
    try:
        gpus.hold("GPU-0", round(float(gib) * GIB))
    except GpuFullError as full:
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", flush=True)
        sys.exit(1)
    print("holds", gib, flush=True)
    sys.stdin.readline()
"""


def eventually(what: str, condition: Callable[[], bool], timeout_s: float = 20.0) -> float:
    start_s = time.monotonic()
    while not condition():
        assert time.monotonic() - start_s < within(timeout_s), what
        time.sleep(0.02)
    return time.monotonic() - start_s


class Node(Hooks):
    """The node of the hooks' tests, with a monitor and jobs of two users."""

    def __init__(self, folder: Path, stack: ExitStack, *, partition: str = "") -> None:
        super().__init__(folder, partition=partition)
        self._stack = stack
        for job_id in USERS:
            self.run("prolog", job_id)
        monitor = [
            sys.executable,
            "-I",
            "-m",
            "slurm_plugin.monitor.daemon",
            "--config",
            f"{folder}/rad.toml",
        ]
        self._started(subprocess.Popen(monitor))
        eventually("the monitor samples", (folder / "run" / "monitor" / "window.json").exists)

    def slurm(self, job_id: int) -> dict[str, str]:
        user = USERS[job_id]
        own = {"SLURM_JOB_UID": str(user), "SLURM_JOB_GID": str(user), "SLURM_JOB_USER": f"u{user}"}
        output = {"SLURM_JOB_STDOUT": str(self.output(job_id))}
        comment = {"SLURM_JOB_COMMENT": signed_booking(SHARED, user_id=user, key=KEY)}
        return {**super().slurm(job_id), **own, **output, **comment}

    def output(self, job_id: int) -> Path:
        return self.folder / f"{job_id}.out"

    def said(self, job_id: int) -> str:
        return self.output(job_id).read_text()

    def start(self, job_id: int, *gib: float) -> subprocess.Popen[bytes]:
        """Start what a batch script would: a shell that goes on whatever its program does."""
        user = USERS[job_id]
        words = " ".join([sys.executable, "-I", "-c", '"$0"', f"{self.folder}/gpus", *map(str, gib)])
        with self.output(job_id).open("wb") as out:
            os.fchown(out.fileno(), user, user)
            script = f"trap '' TERM; {words}; [ $? = 1 ] && exit 1; exec sleep 100"
            process = subprocess.Popen(
                **step(self.folder, job_id, user, ["/bin/sh", "-c", script, PROGRAM]),
                env={"SLURM_JOB_ID": str(job_id), "PATH": "/usr/bin:/bin"},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        started = self._started(process)
        self._stack.callback(_kill_group, process.pid)  # the shell's program outlives the shell
        return started

    def _started(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def events(self, job_id: int) -> list[tuple[str, str, str]]:
        rows = [json.loads(line) for line in (self.folder / "log" / "events.jsonl").read_text().splitlines()]
        return [(row["hook"], row["event"], row["detail"]) for row in rows if row["job"] == job_id]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # pytest's own are closed to other users
        Path(name).chmod(0o755)
        yield Path(name)
        eventually("no process of the test is left", lambda: not _processes_that_name(name))


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _processes_that_name(folder: str) -> list[str]:
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [line.parent.name] * (folder.encode() in line.read_bytes())
    return found


def go_on(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def test_an_overrunning_job_is_ended_and_its_victim_is_known(folder: Path) -> None:
    with ExitStack() as stack:
        node = Node(folder, stack)
        victim = node.start(VICTIM, 1.5, 3)
        eventually("the victim works", lambda: "holds 1.5" in node.said(VICTIM))
        overrunner = node.start(OVERRUNNER, 8.4)
        eventually("the theft", lambda: "holds 8.4" in node.said(OVERRUNNER))
        go_on(victim)
        took_s = eventually("the overrunning job is ended", lambda: overrunner.poll() is not None)
        assert (took_s < within(STOPPED_S), overrunner.poll()) == (True, -9)
        eventually("the victim ran out of memory", lambda: victim.poll() is not None)
        node.run("epilog", VICTIM, SLURM_JOB_EXIT_CODE=str(victim.wait() << 8))
        node.run(
            "epilog",
            OVERRUNNER,
            SLURM_JOB_EXIT_CODE="9",
            SLURM_JOB_COMMENT="sized by hand, without a booking",
        )
    endings = [(event, detail) for hook, event, detail in node.events(VICTIM) if hook == "epilog"]
    assert endings[0][0] == "victim" and "uses 8.4 GiB on GPU-0, above its limit of 4.0 GiB" in endings[0][1]
    assert [event for hook, event, _ in node.events(OVERRUNNER) if hook == "monitor"] == ["overrun"]
    ends = [(event, detail) for hook, event, detail in node.events(OVERRUNNER) if hook == "epilog"]
    assert ends[0][0] == "overrun"
    assert ends[1][0] == "not reported", "Slurm was to run it again, and is not there"


def test_a_site_that_only_warns_ends_no_job(folder: Path) -> None:
    with ExitStack() as stack:
        node = Node(folder, stack, partition='on_overrun = "warn"')
        overrunner = node.start(OVERRUNNER, 8.4)
        eventually(
            "it is named",
            lambda: [row[:2] for row in node.events(OVERRUNNER)][-1:] == [("monitor", "overrun")],
        )
        go_on(overrunner)  # its program ends, so it was alive
        assert overrunner.poll() is None


def test_a_job_of_a_partition_that_no_admin_configured_is_not_touched(folder: Path) -> None:
    with ExitStack() as stack:
        node = Node(folder, stack)
        store = LedgerStore(folder / "run", clock=SystemClock(), boot_id=boot_id())
        ledger = store.read().ledger
        assert {allocation.partition for allocation in ledger.allocations} == {"gpu"}
        noted = (replace(allocation, partition="other", managed=False) for allocation in ledger.allocations)
        store.write(replace(ledger, allocations=tuple(noted)))
        overrunner = node.start(OVERRUNNER, 8.4)
        eventually("it holds", lambda: "holds 8.4" in node.said(OVERRUNNER))
        window = folder / "run" / "monitor" / "window.json"
        before_s = json.loads(window.read_text())["time_s"]
        eventually("four samples", lambda: json.loads(window.read_text())["time_s"] > before_s + 4)
        assert overrunner.poll() is None
        assert [row for row in node.events(OVERRUNNER) if row[0] == "monitor"] == []
