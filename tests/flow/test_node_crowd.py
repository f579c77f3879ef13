"""Two hundred hooks at once on one node: no allocation is lost, none is given twice, killed hooks leave nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes import FakeClock, FakeSlurm

from lab.bare_node import job_environment, make_bare_node
from slurm_plugin.core.booking.verification import partition_mark
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import load_config
from slurm_plugin.core.ledger.job_file import JobFile
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.reconcile import LAUNCH_S
from slurm_plugin.core.ledger.store import LedgerStore, boot_id
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB, from_mib
from slurm_plugin.node.node import Node
from slurm_plugin.node.reconcile import reconcile_node
from slurm_plugin.node.unconfirmed import LEAST_AGE_S
from tests.timing import within

PROGRAM = Path(__file__).with_name("crowd.py")
JOBS = 200
GPUS = 16
GPU_GIB = 40
ROUNDS = 5
"""Where a machine has time for all hooks, a crowd of killed ones may leave nothing once."""


@dataclass(frozen=True, slots=True)
class CrowdedNode:
    """A node with simulated GPUs, on which all jobs' hooks run at once."""

    rad_toml: Path

    @property
    def folder(self) -> Path:
        return self.rad_toml.parent

    def run(self, hook: str, jobs: list[int], *options: str) -> int:
        """Run a hook for each job, all at once; return of how many hooks not even the second child came to its end."""
        environments = self.folder / "environments.json"
        environments.write_text(json.dumps([environment(job_id) for job_id in jobs]))
        argv = [sys.executable, "-I", str(PROGRAM), hook, str(environments), *options]
        done = subprocess.run(
            [*argv, "--", "--config", str(self.rad_toml)], capture_output=True, text=True, timeout=within(300)
        )
        assert json.loads(done.stdout) == {"0": len(jobs)}, done.stderr
        return done.stderr.count("rad: ")

    @property
    def ledger(self) -> Ledger:
        found = LedgerStore(self.folder / "run", clock=SystemClock(), boot_id=boot_id()).read()
        assert not found.lost
        return found.ledger

    def file(self, job_id: int) -> JobFile:
        return JobFile(self.folder / "run", job_id)

    @property
    def left_alone(self) -> int:
        return (self.folder / "log" / "prolog.log").read_text().count("unchanged:")

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "run" / "placed").iterdir())

    def reconcile_later(self) -> None:
        """Reconcile twice, as rad-monitor does, when the jobs are no longer young and Slurm lists none of them."""
        for waited_s in (0.0, 2 * LEAST_AGE_S):
            self._reconcile(FakeClock(now_s=SystemClock().monotonic_s() + 2 * LAUNCH_S + waited_s))

    def _reconcile(self, clock: FakeClock) -> None:
        for draft in (self.folder / "run" / "placed").glob("*.new"):  # of a hook that was killed as it wrote
            os.utime(draft, (0, 0))
        config = load_config(self.rad_toml)
        (self.folder / "no-proc").mkdir(exist_ok=True)
        node = Node(
            config=config,
            clock=clock,
            store=LedgerStore(self.folder / "run", clock=clock, boot_id=boot_id()),
            slurm=FakeSlurm,  # type: ignore[arg-type]
            slurm_conf=None,
            confined=False,
            proc=self.folder / "no-proc",
        )
        reconcile_node(node, ())


@pytest.fixture
def node(tmp_path: Path) -> CrowdedNode:
    return CrowdedNode(make_bare_node(tmp_path, gpus=GPUS, gpu_gib=GPU_GIB, partition='pin = "bound"'))


def environment(job_id: int) -> dict[str, str]:
    """Every tenth job wants a GPU of its own; the others 3 to 9 GiB."""
    marks = (partition_mark("gpu"),)
    gib = 3 + job_id % 7
    booking = (
        Booking(kind="shared", memory_bytes=gib * GIB, shards=gib, partitions=marks)
        if job_id % 10
        else Booking(kind="whole", partitions=marks)
    )
    return job_environment(job_id, booking, gpu_indices=str(job_id % GPUS), SLURM_JOB_EXIT_CODE="0")


def assert_nothing_is_given_twice(ledger: Ledger) -> None:
    ids = [allocation.job_id for allocation in ledger.allocations]
    assert len(ids) == len(set(ids))
    for index in range(GPUS):
        on_it = ledger.on(f"GPU-{index}")
        assert sum(one.booked_bytes for one in on_it) <= GPU_GIB * GIB
        assert len(on_it) <= 1 or all(one.kind == "shared" for one in on_it)


def test_two_hundred_prologs_and_three_hundred_epilogs_at_once(node: CrowdedNode) -> None:
    jobs = list(range(1, JOBS + 1))
    assert node.run("prolog", jobs) == 0
    reported = {job_id: variables for job_id in jobs if (variables := node.file(job_id).variables())}
    refused = [job_id for job_id in jobs if node.file(job_id).refusal() is not None]
    allocation = {one.job_id: one for one in node.ledger.allocations}
    assert set(allocation) == set(reported), "a job that was given its GPU is in the ledger, and no other"
    assert len(reported) + len(refused) + node.left_alone == JOBS, (
        "every job was placed, sent back or given up"
    )
    assert len(reported) > GPUS, "the GPUs are shared"
    for job_id, variables in reported.items():
        assert variables["RAD_GPUS"] == ",".join(allocation[job_id].gpus)
        assert from_mib(int(variables["RAD_BOOKED_MIB"])) == allocation[job_id].booked_bytes
    assert_nothing_is_given_twice(node.ledger)

    assert node.run("epilog", [job_id for job_id in jobs for _ in range(1 + job_id % 2)]) == 0
    assert node.ledger.allocations == ()
    assert node.files == []


def test_what_hooks_leave_that_were_killed_in_a_crowd_is_removed(node: CrowdedNode) -> None:
    first, *others = range(1, JOBS + 1)
    assert node.run("prolog", [first]) == 0
    for _ in range(ROUNDS):
        assert node.run("prolog", others, "kill") > 0, "not even what takes back the work was done"
        reported = {job_id for job_id in (first, *others) if node.file(job_id).variables()}
        assert first in reported
        assert_nothing_is_given_twice(node.ledger)
        assert node.run("epilog", others, "kill") > 0
        assert_nothing_is_given_twice(node.ledger)
        if len(node.ledger.allocations) > 1 and len(node.files) > 1:
            break
    else:
        pytest.fail("killed hooks left nothing in any round")
    node.run("epilog", [first], "kill")
    node.reconcile_later()
    assert node.ledger.allocations == ()
    assert node.files == []
