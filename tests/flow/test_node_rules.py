"""Rules 2 and 3 on one node, over any order of arrivals, ends, reruns, crashes, repeats, losses and reboots."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from fake_proc import process, slurmstepd
from fakes import FakeClock, FakeSlurm
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from prolog.attempts import place_job
from prolog.place import SOON_S, context_of
from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.comments.signed_comment import signed_booking
from slurm_plugin.core.config.load import Config, PartitionConfig, parse_config
from slurm_plugin.core.ledger.job_file import JobFile, placed_files
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.pooled_reserve import pooled_bytes, share_of
from slurm_plugin.core.ledger.store import LedgerStore
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation, Demand
from slurm_plugin.core.records.submission import Booking, BookingKind
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.window import write_window
from slurm_plugin.node.node import Node
from slurm_plugin.node.reconcile import reconcile_node
from slurm_plugin.slurm.control import JobView
from slurm_plugin.slurm.node.hook_env import HookJob

GPUS = 3
KEY = b"r" * 32
STEPS, TASKS = 50_000, 100_000
"""Added to a job's id for the pids of its slurmstepd and of its task."""
USABLE = 10 * GIB


class Killed(BaseException):
    """The hook is gone, as by kill -9: nothing after this point of it runs."""


class FragileStore(LedgerStore):
    """A ledger whose hook may be killed before or after any of its writes."""

    def __init__(self, folder: Path, clock: FakeClock, boot: str, killed_at: int | None) -> None:
        super().__init__(folder, clock=clock, boot_id=boot)
        self._steps_left = killed_at

    def write(self, ledger: Ledger) -> None:
        self._step()
        super().write(ledger)
        self._step()

    def _step(self) -> None:
        if self._steps_left is not None:
            if self._steps_left == 0:
                raise Killed
            self._steps_left -= 1


class NodeMachine(RuleBasedStateMachine):
    jobs = Bundle("jobs")

    @initialize(
        pin=st.sampled_from(["auto", "bound", "slurm"]),
        policy=st.sampled_from(["magm", "lug", "mug", "round_robin", "exclusive"]),
    )
    def start(self, pin: str, policy: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rad-rules-"))
        self.run_folder, self.proc = self.folder / "run", self.folder / "proc"
        self.proc.mkdir()
        (self.folder / "key").write_bytes(KEY)
        (self.folder / "key").chmod(0o600)
        self.clock = FakeClock(now_s=os.stat(self.folder).st_mtime)
        self.config: Config = parse_config(
            {
                "paths": {"run": str(self.run_folder), "key": str(self.folder / "key")},
                "partition": {"gpu": {"collocate": True, "shards_per_gpu": 10, "pin": pin, "policy": policy}},
            },
            origin="test",
        )
        self.settings: PartitionConfig = self.config.partitions["gpu"]
        self.boot = 0
        self.next_id = 1
        self.running: dict[int, Allocation] = {}
        self.unmanaged = [0] * GPUS
        self.slurm = FakeSlurm()
        self.last_start_s = 0.0

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- the hooks ------------------------------------------------------------------------------------------------

    def readings(self) -> list[GpuReading]:
        return [
            GpuReading(
                uuid=f"GPU-{index}",
                index=index,
                name="test",
                memory_total_bytes=USABLE,
                memory_used_bytes=self.unmanaged[index],
                smact=0.1,
                time_s=self.clock.now_s(),
            )
            for index in range(GPUS)
        ]

    def node(self, killed_at: int | None = None) -> Node:
        return Node(
            config=self.config,
            clock=self.clock,
            store=FragileStore(self.run_folder, self.clock, str(self.boot), killed_at),
            slurm=lambda: self.slurm,  # type: ignore[arg-type,return-value]
            slurm_conf=None,
            confined=False,
            proc=self.proc,
        )

    def prolog(
        self,
        job_id: int,
        restart: int,
        kind: BookingKind,
        gib: int,
        gpu_indices: tuple[int, ...],
        killed_at: int | None,
        *,
        more_gib: int = 0,
    ) -> None:
        self.last_start_s = self.clock.time_s
        node = self.node(killed_at)
        write_window(self.run_folder, self.readings(), now_s=self.clock.now_s())
        job = HookJob(
            job_id=job_id,
            user_id=os.geteuid(),
            group_id=os.getegid(),
            restart=restart,
            gpu_indices=gpu_indices,
            partition="gpu",
        )
        demand = Demand(
            job_id=job_id,
            user_id=os.geteuid(),
            kind=kind,
            gpus=len(gpu_indices) if kind == "whole" else 1,
            booked_bytes=None if kind == "whole" else gib * GIB,
            gpu_indices=gpu_indices,
            cap_bytes=(gib + more_gib) * GIB,
            estimate_bytes=gib * GIB * 3 // 4,
            profile_key=f"model{job_id % 3}",
            restart=restart,
        )
        try:
            context = context_of(node, job, demand, self.settings, soon=Deadline(self.clock, SOON_S))
            placed = place_job(context, start_mps=lambda _: {}, requeue=lambda _: True).placed
            if placed.allocation is not None:
                boot = node.store.boot_id
                node.job_file(job_id).place({}, placed.allocation, boot_id=boot)
        except Killed:
            return  # slurmd drains the node and requeues the job: it does not run
        if placed.allocation is not None:
            self.started(placed.allocation)

    def started(self, allocation: Allocation) -> None:
        for uuid in allocation.gpus:
            neighbours = [one for one in self.running.values() if uuid in one.gpus]
            assert not neighbours or {one.kind for one in [allocation, *neighbours]} == {"shared"}
            if allocation.kind == "shared":
                booked = sum(one.booked_bytes for one in [allocation, *neighbours])
                assert booked + self.unmanaged[int(uuid[-1])] <= USABLE
                pooled = pooled_bytes(share_of(one) for one in [allocation, *neighbours])
                assert (
                    allocation.limit_bytes == allocation.booked_bytes
                    or pooled + self.unmanaged[int(uuid[-1])] <= USABLE
                )
        self.running[allocation.job_id] = allocation
        kind, memory_bytes = allocation.kind, None if allocation.kind == "whole" else allocation.booked_bytes
        booking = Booking(
            kind=kind,
            memory_bytes=memory_bytes,
            cap_bytes=allocation.cap_bytes,
            estimate_bytes=allocation.estimate_bytes,
            profile_key=allocation.profile_key,
            gpus=len(allocation.gpus),
        )
        self.slurm.views[allocation.job_id] = JobView(
            job_id=allocation.job_id,
            user_id=0,
            state="RUNNING",
            restarts=allocation.restart,
            comment=signed_booking(booking, user_id=0, key=KEY),
        )
        slurmstepd(self.proc, STEPS + allocation.job_id, f"{allocation.job_id}.batch")
        gpus = {"CUDA_VISIBLE_DEVICES": ",".join(allocation.gpus)}
        process(self.proc, TASKS + allocation.job_id, parent=STEPS + allocation.job_id, environment=gpus)

    def ended(self, job_id: int) -> None:
        self.running.pop(job_id, None)
        self.slurm.views.pop(job_id, None)
        for pid in (STEPS + job_id, TASKS + job_id):
            shutil.rmtree(self.proc / str(pid), ignore_errors=True)

    def epilog(self, job_id: int, restart: int) -> None:
        store = LedgerStore(self.run_folder, clock=self.clock, boot_id=str(self.boot))
        if job_id not in self.running:
            JobFile(self.run_folder, job_id).remove()
        store.release(job_id, restart=restart, deadline=Deadline(self.clock, 1.0))

    # --- what may happen ------------------------------------------------------------------------------------------

    @rule(
        target=jobs,
        kind=st.sampled_from(["shared", "shared", "shared", "whole"]),
        gib=st.integers(1, 10),
        gpu_indices=st.lists(st.integers(0, GPUS - 1), min_size=1, max_size=2, unique=True),
        killed_at=st.none() | st.integers(0, 4),
        more_gib=st.integers(0, 10),
    )
    def arrives(
        self, kind: BookingKind, gib: int, gpu_indices: list[int], killed_at: int | None, more_gib: int
    ) -> object:
        job_id, self.next_id = self.next_id, self.next_id + 1
        chosen = tuple(gpu_indices) if kind == "whole" else (gpu_indices[0],)
        self.prolog(job_id, 0, kind, gib, chosen, killed_at, more_gib=more_gib)
        return job_id if job_id in self.running else multiple()

    @rule(job_id=consumes(jobs), epilogs=st.integers(0, 2))
    def ends(self, job_id: int, epilogs: int) -> None:
        allocation = self.running.get(job_id)
        self.ended(job_id)
        for _ in range(epilogs):
            self.epilog(job_id, allocation.restart if allocation else 0)

    @rule(job_id=jobs, gib=st.integers(1, 10), killed_at=st.none() | st.integers(0, 4), late=st.booleans())
    def runs_again(self, job_id: int, gib: int, killed_at: int | None, late: bool) -> None:
        allocation = self.running.get(job_id)
        if allocation is None:
            return
        self.ended(job_id)
        self.epilog(job_id, allocation.restart)
        self.prolog(job_id, allocation.restart + 1, "shared", gib, allocation.gpu_indices[:1], killed_at)
        if late:
            self.epilog(job_id, allocation.restart)

    @rule(seconds=st.integers(1, 200))
    def time_passes(self, seconds: int) -> None:
        self.clock.time_s += seconds

    @rule(seconds=st.sampled_from([-3600.0, 3600.0, -1e9]))
    def the_wall_clock_jumps(self, seconds: float) -> None:
        self.clock.ahead_s = seconds

    @rule(killed_at=st.none() | st.integers(0, 1))
    def the_monitor_reconciles(self, killed_at: int | None) -> None:
        with contextlib.suppress(Killed):
            reconcile_node(self.node(killed_at), self.readings())

    @rule(gpu=st.integers(0, GPUS - 1), gib=st.integers(0, 9))
    def an_unmanaged_process_comes_or_goes(self, gpu: int, gib: int) -> None:
        self.unmanaged[gpu] = gib * GIB

    @rule(answers=st.booleans())
    def slurm_answers(self, answers: bool) -> None:
        self.slurm.answers = answers

    @rule(content=st.sampled_from([None, b"", b"{}", b"\xff", b'{"boot_id": "0", "allocations": 3}']))
    def the_ledger_is_lost_or_damaged(self, content: bytes | None) -> None:
        path = self.run_folder / "ledger"
        if path.exists():
            path.unlink() if content is None else path.write_bytes(content)

    @rule()
    def everything_is_lost(self) -> None:
        shutil.rmtree(self.run_folder, ignore_errors=True)

    @rule()
    def the_node_reboots(self) -> None:
        for job_id in list(self.running):
            self.ended(job_id)
        self.boot += 1

    # --- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def a_ledger_that_is_there_holds_every_running_job(self) -> None:
        if not hasattr(self, "run_folder"):
            return
        found = LedgerStore(self.run_folder, clock=self.clock, boot_id=str(self.boot)).read()
        if not found.lost:
            allocation = {one.job_id: one for one in found.ledger.allocations}
            for job_id, one in self.running.items():
                assert job_id in allocation
                assert allocation[job_id].gpus == one.gpus
                assert allocation[job_id].kind in (one.kind, "whole"), (
                    "of what is not known the whole is kept"
                )

    @invariant()
    def a_minute_later_nothing_of_the_dead_is_left(self) -> None:
        if (
            not hasattr(self, "run_folder")
            or not self.slurm.answers
            or self.clock.time_s < self.last_start_s + 60
        ):
            return
        if not (self.run_folder / "ledger").exists():
            self.last_start_s = self.clock.time_s  # what is found again counts as young
        for _ in range(2):  # one list of jobs that lacks one proves nothing
            reconcile_node(self.node(), self.readings())
        if self.clock.time_s < self.last_start_s + 60:
            return
        found = LedgerStore(self.run_folder, clock=self.clock, boot_id=str(self.boot)).read()
        assert {one.job_id for one in found.ledger.allocations} == self.running.keys()
        assert {
            file.job_id for file in placed_files(self.run_folder, boot_id=str(self.boot))
        } <= self.running.keys()


TestNodeRules = NodeMachine.TestCase
TestNodeRules.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
