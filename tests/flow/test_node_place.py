"""Placement on a node with its real files: what one hook leaves, the next one finds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fake_proc import process, slurmstepd
from fakes import FakeClock, FakeSlurm

from prolog.attempts import place_job
from prolog.demand import wanted_by
from prolog.place import SOON_S, Placed, context_of
from slurm_plugin.core.booking.verification import partition_mark
from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.comments.signed_comment import signed_booking, with_signed_booking
from slurm_plugin.core.config.load import Config, GpuType, parse_config
from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.ledger.job_file import placed_files
from slurm_plugin.core.ledger.reconcile import LAUNCH_S
from slurm_plugin.core.ledger.store import LedgerStore
from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Demand
from slurm_plugin.core.records.submission import Booking, BookingKind
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.reconciler import RECONCILE_EVERY_S, Reconciler
from slurm_plugin.monitor.window import STALE_AFTER_S, write_window
from slurm_plugin.mps.state import State, write_state
from slurm_plugin.node.facts import facts_of
from slurm_plugin.node.node import Node
from slurm_plugin.node.reconcile import OVERDUE_S, reconcile_node
from slurm_plugin.slurm.control import JobView, NodeView
from slurm_plugin.slurm.node.hook_env import HookJob

KEY = b"k" * 32


class Bench:
    """One node with two GPUs of 10 GiB."""

    def __init__(self, folder: Path, **partition: object) -> None:
        self.folder = folder
        self.clock = FakeClock(now_s=os.stat(folder).st_mtime)
        key = folder / "key"
        key.write_bytes(KEY)
        key.chmod(0o600)
        self.config: Config = parse_config(
            {
                "paths": {"run": str(folder / "run"), "key": str(key)},
                "partition": {"gpu": {"collocate": True, "shards_per_gpu": 10, **partition}},
            },
            origin="test",
        )
        self.slurm = FakeSlurm()
        self.watched = True
        """Whether rad-monitor is there."""
        self.guarded: list[str] | None = None
        """The partitions whose jobs it says that it stops; None for one that says nothing of it."""
        (folder / "proc").mkdir()

    def node(self, *, boot: str = "b", confined: bool = False) -> Node:
        return Node(
            config=self.config,
            clock=self.clock,
            store=LedgerStore(self.folder / "run", clock=self.clock, boot_id=boot),
            slurm=lambda: self.slurm,
            slurm_conf=None,
            confined=confined,
            proc=self.folder / "proc",
        )

    def job(self, job_id: int, *, gpu_indices: tuple[int, ...] = (0,), comment: str = "") -> HookJob:
        return HookJob(
            job_id=job_id,
            user_id=os.geteuid(),
            group_id=os.getegid(),
            partition="gpu",
            gpu_indices=gpu_indices,
            comment=comment,
        )

    @property
    def readings(self) -> list[GpuReading]:
        return [
            GpuReading(
                uuid=f"GPU-{index}",
                index=index,
                name="test",
                memory_total_bytes=10 * GIB,
                memory_used_bytes=0,
                time_s=self.clock.now_s(),
            )
            for index in range(2)
        ]

    def place(
        self,
        job_id: int,
        gib: int | None = None,
        *,
        kind: BookingKind = "shared",
        confined: bool = False,
        gpu_index: int = 0,
        estimate: int | None = None,
        cap: int | None = None,
        gpus: int = 1,
        restart: int = 0,
        uncapped: bool = False,
        apart: bool = True,
        age_s: float = 0.0,
    ) -> Placed:
        if self.watched:
            write_window(self.folder / "run", self.readings, now_s=self.clock.now_s(), guarded=self.guarded)
        gpu_indices = tuple(range(gpu_index, gpu_index + gpus))
        demand = Demand(
            job_id=job_id,
            user_id=os.geteuid(),
            kind=kind,
            gpus=gpus,
            booked_bytes=None if gib is None else gib * GIB,
            gpu_indices=gpu_indices,
            restart=restart,
            uncapped=uncapped,
            estimate_bytes=None if estimate is None else estimate * GIB,
            cap_bytes=None if cap is None else cap * GIB,
        )
        return self.placed(demand, confined=confined, apart=apart, age_s=age_s)

    def placed(
        self, demand: Demand, *, confined: bool = False, apart: bool = True, age_s: float = 0.0
    ) -> Placed:
        """Place a job in a hook of this age; one whose limit nothing enforces is requeued, or never is."""
        context = context_of(
            self.node(confined=confined),
            self.job(demand.job_id, gpu_indices=demand.gpu_indices),
            demand,
            self.config.partitions["gpu"],
            apart=apart,
            soon=Deadline(self.clock, SOON_S - age_s),
        )
        return place_job(context, start_mps=lambda _: {}, requeue=lambda _: True).placed

    def step(self, job_id: int, **task: str) -> None:
        """A slurmstepd of a job, and a task of it with this environment."""
        proc = self.folder / "proc"
        slurmstepd(proc, 1000 + job_id, f"{job_id}.batch")
        process(proc, 2000 + job_id, parent=1000 + job_id, environment=task)

    def slurm_has(self, job_id: int, booking: Booking | None = None) -> None:
        """Slurm runs a job here."""
        comment = "" if booking is None else signed_booking(booking, user_id=os.geteuid(), key=KEY)
        self.slurm.views[job_id] = JobView(
            job_id=job_id, user_id=os.geteuid(), state="RUNNING", comment=comment
        )

    def release(self, job_id: int) -> None:
        self.node().store.release(job_id, restart=0, deadline=Deadline(self.clock, 1.0))

    @property
    def allocation(self) -> list[int]:
        return [allocation.job_id for allocation in self.node().store.read().ledger.allocations]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_jobs_of_one_index_share_its_gpu_and_a_whole_job_gets_the_other(bench: Bench) -> None:
    assert bench.place(1, 4).placement.gpus == ("GPU-0",)
    assert bench.place(2, 4).placement.gpus == ("GPU-0",)
    assert bench.place(3, kind="whole", gpu_index=1).placement.gpus == ("GPU-1",)
    assert bench.slurm.queries == 0


def test_a_confined_job_stays_on_its_index(bench: Bench) -> None:
    assert bench.place(1, kind="whole", confined=True, gpu_index=1).placement.gpus == ("GPU-1",)
    assert bench.place(2, 4, confined=True, gpu_index=1).placement.requeue


def test_before_a_job_is_requeued_slurm_says_whether_the_holder_is_gone(bench: Bench) -> None:
    for job_id, gpu_index in ((1, 0), (2, 1)):
        bench.place(job_id, kind="whole", gpu_index=gpu_index)
    bench.clock.time_s += LAUNCH_S + 1
    bench.slurm.answers = False
    assert bench.place(3, kind="whole").placement.requeue, "no answer is no booking"
    bench.slurm.answers = True
    bench.slurm_has(2)
    assert bench.place(3, kind="whole").placement.requeue, "one list that lacks a job proves nothing"
    assert bench.place(3, kind="whole").placement.gpus == ("GPU-0",)


def test_a_job_that_one_list_lacked_is_missed_again_after_it_was_listed(bench: Bench) -> None:
    bench.place(1, kind="whole")
    bench.clock.time_s += LAUNCH_S + 1
    for listed in (False, True, False):
        bench.slurm.views.clear()
        if listed:
            bench.slurm_has(1)
        assert not reconcile_node(bench.node(), bench.readings)
    bench.slurm.answers = False
    assert not reconcile_node(bench.node(), bench.readings), "no answer proves nothing"
    bench.slurm.answers = True
    assert reconcile_node(bench.node(), bench.readings).released == (1,)


class NextSample(FakeClock):
    """Time in which rad-monitor takes a sample every second."""

    def __init__(self, bench: Bench, used: Sequence[int]) -> None:
        super().__init__(now_s=bench.clock.time_s)
        self.bench, self.used = bench, list(used)
        bench.clock, self.next_s = self, self.time_s + 1.0

    def take(self) -> None:
        """Write down what is used of both GPUs in GiB, the first number of `used` now and each other a second later."""
        used_bytes = self.used.pop(0) * GIB
        readings = [replace(reading, memory_used_bytes=used_bytes) for reading in self.bench.readings]
        write_window(self.bench.folder / "run", readings, now_s=self.now_s())

    def sleep(self, duration_s: float) -> None:
        super().sleep(duration_s)
        if self.time_s >= self.next_s and self.used:
            self.next_s += 1.0
            self.take()


def test_memory_of_a_job_that_has_just_ended_puts_no_job_back(bench: Bench) -> None:
    """In replays on an H100 four jobs lost their turn to what was gone when they were requeued."""
    clock, bench.watched = NextSample(bench, used=[8, 0]), False
    clock.take()
    clock.sleep(0.4)
    placed = bench.place(1, 6)
    assert placed.placement.gpus and not placed.placement.requeue
    assert 0.5 < sum(clock.slept) < 1.2


def test_memory_that_no_job_booked_and_a_process_keeps_is_waited_for_once(bench: Bench) -> None:
    clock, bench.watched = NextSample(bench, used=[8, 8, 8, 0]), False
    clock.take()
    placed = bench.place(1, 6)
    assert placed.placement.requeue and "no GPU has the memory, 2.0 GiB" in placed.placement.reason
    assert sum(clock.slept) < 1.5


def test_a_job_that_waited_long_for_its_turn_does_not_wait_for_a_sample_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it must end before the hook's five seconds are over."""
    clock, bench.watched = NextSample(bench, used=[8, 8, 8, 0]), False
    clock.take()
    monkeypatch.setattr("prolog.place.facts_of", lambda *_: clock.sleep(2.0))
    monkeypatch.setattr("prolog.place.pin_of", lambda *_: "bound")
    assert bench.place(1, 6).placement.requeue
    assert clock.slept == [2.0]


@pytest.mark.parametrize(("age_s", "waits"), [(0.2, True), (1.5, False), (4.0, False)])
def test_a_hook_that_slurm_kept_waiting_does_not_wait_for_a_sample_too(
    bench: Bench, age_s: float, waits: bool
) -> None:
    """Nor does one that is placed a second time, since MPS did not start: each began its time again."""
    clock, bench.watched = NextSample(bench, used=[8, 8, 8, 0]), False
    clock.take()
    assert bench.place(1, 6, age_s=age_s).placement.requeue
    assert bool(clock.slept) == waits


def test_no_job_waits_for_memory_that_is_booked(bench: Bench) -> None:
    for job_id in (1, 2):
        assert bench.place(job_id, 8, gpu_index=job_id - 1).placement.gpus
    clock, bench.watched = NextSample(bench, used=[0, 0]), False
    clock.take()
    assert bench.place(3, 6).placement.requeue
    assert not clock.slept


def test_observing_delays_no_job(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.config = replace(bench.config, mode="observe")
    clock, bench.watched = NextSample(bench, used=[8, 0]), False
    clock.take()
    assert bench.place(1, 6).placement.requeue
    assert not clock.slept


def test_a_holder_with_a_step_or_a_young_one_is_not_unconfirmed(bench: Bench) -> None:
    bench.place(1, kind="whole", gpu_index=0)
    bench.step(1)
    bench.clock.time_s += LAUNCH_S + 1
    bench.place(2, kind="whole", gpu_index=1)
    assert bench.place(3, kind="whole").placement.requeue
    assert bench.slurm.queries == 0


def test_a_program_that_calls_itself_slurmstepd_keeps_no_gpu(bench: Bench) -> None:
    """Nor does a setuid-root program of a user's under that name."""
    bench.place(1, kind="whole", gpu_index=0)
    slurmstepd(bench.folder / "proc", 1001, "1.batch", users=(4711, 4711, 4711, 4711))
    slurmstepd(bench.folder / "proc", 1002, "1.batch", users=(4711, 0, 0, 0), program="newgrp")
    bench.clock.time_s += LAUNCH_S + 1
    assert not reconcile_node(bench.node(), bench.readings), "one list that lacks a job proves nothing"
    assert reconcile_node(bench.node(), bench.readings).released == (1,)


def test_without_a_monitor_what_an_epilog_never_released_is_found_by_a_later_hook(bench: Bench) -> None:
    bench.place(1, 4)
    for job_id in (2, 3):
        bench.clock.time_s += OVERDUE_S + 1
        bench.slurm_has(2)
        bench.place(job_id, 4, gpu_index=1)
    assert bench.allocation == [2, 3]


def test_the_monitor_finds_it_within_a_minute_whatever_the_wall_clock_says(bench: Bench) -> None:
    bench.place(1, kind="whole")
    bench.node().job_file(1).place({}, bench.node().store.read().ledger.allocations[0], boot_id="b")
    for ahead_s in (3600.0, -3600.0):
        bench.clock.ahead_s = ahead_s
        assert not reconcile_node(bench.node(), bench.readings)
    bench.clock.time_s += 45
    assert not reconcile_node(bench.node(), bench.readings)
    bench.clock.time_s += RECONCILE_EVERY_S
    assert reconcile_node(bench.node(), bench.readings).released == (1,)
    assert placed_files(bench.folder / "run", boot_id="b") == (), "and no file of it stays"


def test_a_run_that_slurm_believes_in_and_slurm_never_launched_is_found_too(bench: Bench) -> None:
    """slurmctld was killed just after a put-back."""
    facts_of(bench.node(), "n0", bench.readings)
    bench.place(1, kind="whole")
    bench.slurm.views[1] = JobView(job_id=1, user_id=0, state="RUNNING", node="n0")
    bench.clock.time_s += LAUNCH_S - 1
    assert not reconcile_node(bench.node(), bench.readings)
    bench.clock.time_s += 2
    assert not reconcile_node(bench.node(), bench.readings), "one look proves nothing"
    bench.clock.time_s += RECONCILE_EVERY_S
    assert reconcile_node(bench.node(), bench.readings).released == (1,)


def test_a_run_that_one_pass_saw_nothing_of_is_checked_again_after_it_was_seen(bench: Bench) -> None:
    """As where a slurmstepd is overlooked now and then: without rad-monitor hooks reconcile, long apart."""
    facts_of(bench.node(), "n0", bench.readings)
    bench.place(1, kind="whole")
    bench.slurm.views[1] = JobView(job_id=1, user_id=0, state="RUNNING", node="n0")
    bench.clock.time_s += LAUNCH_S + 1
    for seen in (False, True, False):
        step = slurmstepd(bench.folder / "proc", 1001, "1.batch") if seen else None
        assert not reconcile_node(bench.node(), bench.readings)
        if step is not None:
            shutil.rmtree(step)
        bench.clock.time_s += 600
    assert reconcile_node(bench.node(), bench.readings).released == (1,)


def test_a_run_that_slurm_never_launched_goes_back_into_the_queue(bench: Bench) -> None:
    """The reconciliation after the one that finds it gives its GPU back and lets the job run again."""
    facts_of(bench.node(), "n0", bench.readings)
    said: list[str] = []
    reconciler = Reconciler(
        bench.node(), shared_s=lambda job_id: 0.0, log_event=lambda _, text: said.append(text)
    )
    reconciler.look(bench.readings)
    for job in (1, 2, 3):
        bench.place(job, 1)
        bench.slurm.views[job] = JobView(job_id=job, user_id=0, state="RUNNING", node="n0")
    bench.node().job_file(4).refuse("no GPU", boot_id="b", now_s=bench.clock.monotonic_s())
    bench.slurm.views[4] = JobView(job_id=4, user_id=0, state="RUNNING", node="n0")
    bench.clock.time_s += LAUNCH_S + 1
    reconciler.reconcile_node()
    assert bench.slurm.reported == [], "its end may be on its way to the controller"
    bench.step(2)
    bench.slurm.views[3] = replace(bench.slurm.views[3], state="COMPLETING")
    reconciler.reconcile_node()
    reconciler.reconcile_node()
    assert bench.slurm.reported == [(1, "requeue"), (4, "requeue")]
    assert len(said) == 3


def test_an_salloc_that_started_nothing_keeps_its_gpu(bench: Bench) -> None:
    facts_of(bench.node(), "n0", bench.readings)
    bench.place(1, kind="whole")
    bench.slurm.views[1] = JobView(job_id=1, user_id=0, state="RUNNING", node="n0", batch=False)
    bench.clock.time_s += 7200
    assert not reconcile_node(bench.node(), bench.readings)


def test_a_lost_ledger_comes_back_from_the_jobs_files(bench: Bench) -> None:
    placed = bench.place(1, kind="whole", gpu_index=0)
    assert placed.allocation is not None
    bench.node().job_file(1).place({}, placed.allocation, boot_id="b")
    bench.step(1)
    (bench.folder / "run" / "ledger").unlink()
    assert bench.place(2, kind="whole").placement.gpus == ("GPU-1",)
    assert bench.place(3, kind="whole").placement.requeue


@pytest.mark.parametrize(
    ("booking", "shares"),
    [(Booking(kind="shared", memory_bytes=4 * GIB), True), (Booking(kind="whole"), False), (None, False)],
    ids=["a signed share", "a signed whole", "nothing signed"],
)
def test_a_lost_run_folder_comes_back_from_what_is_running(
    bench: Bench, booking: Booking | None, shares: bool
) -> None:
    bench.step(1, CUDA_VISIBLE_DEVICES="GPU-0", RAD_KIND="shared", RAD_BOOKED_MIB="1")
    bench.step(2, CUDA_VISIBLE_DEVICES="GPU-1")
    bench.slurm_has(1, booking)
    bench.slurm_has(2, Booking(kind="whole"))
    shutil.rmtree(bench.folder / "run", ignore_errors=True)
    placed = bench.place(3, 4)
    assert placed.placement.gpus == (("GPU-0",) if shares else ())
    found = bench.node().store.read().ledger.of_job(1)
    assert found is not None and found.booked_bytes == (4 * GIB if shares else 10 * GIB), "the task lied"


def test_no_process_speaks_for_another_job_when_a_ledger_is_rebuilt(bench: Bench) -> None:
    """A user names all GPUs under the id of another user's job, and of one that does not exist."""
    bench.step(1, CUDA_VISIBLE_DEVICES="GPU-0")
    bench.slurm_has(1, Booking(kind="whole"))
    for number, job_id in enumerate((1, 77)):
        env = {"SLURM_JOB_ID": str(job_id), "CUDA_VISIBLE_DEVICES": "GPU-1", "RAD_KIND": "whole"}
        process(bench.folder / "proc", 5000 + number, environment=env)
    assert bench.place(3, kind="whole").placement.gpus == ("GPU-1",)
    assert bench.allocation == [1, 3]


def test_another_boot_starts_with_nothing(bench: Bench) -> None:
    bench.place(1, kind="whole")
    assert bench.node(boot="next").store.read().ledger.allocations == ()


def test_without_monitor_and_driver_there_is_no_placement(bench: Bench) -> None:
    bench.clock.time_s += 60
    demand = Demand(job_id=1, user_id=0, kind="shared", gpus=1, booked_bytes=GIB, gpu_indices=(0,))
    with pytest.raises(DeviceError):
        bench.placed(demand)


def test_a_driver_that_does_not_answer_leaves_the_ledger_to_decide(bench: Bench) -> None:
    """Left alone, a job would run where Slurm put it: next to one that owns that GPU."""
    facts_of(bench.node(), "n0", bench.readings)
    bench.place(1, kind="whole")
    bench.clock.time_s += 60
    found = []
    for job_id, kind in ((2, "whole"), (3, "shared")):
        demand = Demand(job_id=job_id, user_id=0, kind=kind, gpus=1, booked_bytes=GIB, gpu_indices=(0,))
        found.append(bench.placed(demand).placement)
    assert found[0].gpus == ("GPU-1",)
    assert found[1].requeue
    assert bench.allocation == [1, 2]


def test_observe_decides_and_keeps_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.config = parse_config(
        {
            "mode": "observe",
            "paths": {"run": str(tmp_path / "run")},
            "partition": {"gpu": {"collocate": True, "shards_per_gpu": 10}},
        },
        origin="test",
    )
    placed = bench.place(1, 4)
    assert placed.placement.gpus == ("GPU-0",) and placed.allocation is None
    assert bench.node().store.read().ledger.allocations == ()
    assert not (tmp_path / "run" / "placed").exists()


def wanted(
    bench: Bench, comment: str, gres: str | None = None, gpu_indices: tuple[int, ...] = (0,)
) -> tuple[str, Demand | None]:
    if gres is not None:
        bench.slurm.views[1] = JobView(job_id=1, user_id=os.geteuid(), state="RUNNING", gres=gres)
    found = wanted_by(
        bench.job(1, gpu_indices=gpu_indices, comment=comment),
        bench.config,
        bench.config.partitions["gpu"],
        lambda: bench.slurm,
    )
    return found.source, found.demand


def test_a_cap_lies_above_the_booking_only_where_the_guard_would_act(bench: Bench) -> None:
    """Without rad-monitor or its guard, jobs hold what they booked and no more."""
    assert bench.place(1, 4, cap=8).allocation.limit_bytes == 8 * GIB  # type: ignore[union-attr]
    for number, change in enumerate(
        (
            {"features": replace(bench.config.features, guard=False)},
            {"partitions": {"gpu": replace(bench.config.partitions["gpu"], on_overrun="warn")}},
        ),
        start=2,
    ):
        before, bench.config = bench.config, replace(bench.config, **change)  # type: ignore[arg-type]
        assert bench.place(number, 4, cap=8, gpu_index=1).allocation.limit_bytes == 4 * GIB  # type: ignore[union-attr]
        bench.config = before


def without_guard(bench: Bench, why: str) -> None:
    """Leave the node without a guard that stops a job: from one moment to the next, or by the admin's word."""
    settings = bench.config.partitions["gpu"]
    if why == "not reloaded":
        bench.guarded = []
    elif why == "no monitor":
        bench.watched = False
        bench.clock.sleep(STALE_AFTER_S + 1)
    elif why == "no guard":
        bench.config = replace(bench.config, features=replace(bench.config.features, guard=False))
    else:
        warns = replace(settings, on_overrun="warn")
        bench.config = replace(bench.config, partitions={"gpu": warns})


UNGUARDED = pytest.mark.parametrize("why", ["no monitor", "no guard", "warns", "not reloaded"])


@UNGUARDED
def test_what_nothing_holds_begins_alone(bench: Bench, why: str) -> None:
    """A job of two GPUs runs past MPS: without the guard it could take all that its neighbours booked."""
    assert bench.place(1, 2).allocation is not None
    assert bench.place(2, 2, gpus=2).allocation is not None, "with the guard it shares"
    bench.release(2)
    without_guard(bench, why)
    placed = bench.place(3, 2, gpus=2)
    assert placed.placement.requeue and "rad-monitor" in placed.placement.reason
    bench.release(1)
    assert len(bench.place(3, 2, gpus=2).placement.gpus) == 2


@UNGUARDED
def test_no_job_joins_what_nothing_holds_until_the_guard_is_back(bench: Bench, why: str) -> None:
    """The monitor is gone, or its guard only warns, while a job of two GPUs runs that it alone limited."""
    config = bench.config
    assert bench.place(1, 2, gpus=2).allocation is not None
    without_guard(bench, why)
    assert bench.place(2, 2).placement.requeue
    assert bench.place(2, 2, apart=False).allocation is not None, "it cannot wait: Slurm gave it that memory"
    bench.release(2)
    bench.config, bench.watched, bench.guarded = config, True, ["gpu"]
    assert bench.place(2, 2).allocation is not None


@UNGUARDED
def test_a_job_for_which_mps_did_not_start_is_limited_by_the_guard_or_shares_with_no_job(
    bench: Bench, why: str
) -> None:
    assert bench.place(1, 2).allocation is not None
    assert bench.place(2, 2, uncapped=True).placement.gpus == ("GPU-0",), "with the guard it shares"
    config = bench.config
    without_guard(bench, why)
    assert bench.place(3, 2).placement.gpus == ("GPU-1",), "no job joins it"
    assert bench.place(4, 2, uncapped=True).placement.requeue, "it joins no job"
    bench.config, bench.watched, bench.guarded = config, True, ["gpu"]
    assert bench.place(4, 2, uncapped=True).placement.gpus, "next to either of them"


@pytest.mark.parametrize(("ends", "shares"), [("daemon", False), ("server", True), ("", True)])
@UNGUARDED
def test_no_job_joins_a_job_whose_mps_daemon_has_ended(
    bench: Bench, why: str, ends: str, shares: bool
) -> None:
    """Of a server alone the daemon starts the next, under the same limit."""
    assert bench.place(1, 2).allocation is not None
    alive = Process.running(os.getpid())
    assert alive is not None
    ended = replace(alive, started_ticks=0)
    processes = {name: ended if name == ends else alive for name in ("daemon", "server")}
    write_state(bench.folder / "run" / "mps" / "GPU-0" / "1000", State(**processes, jobs={1: 2 * GIB}))
    assert bench.place(2, 2).placement.gpus == ("GPU-0",), "with the guard they share"
    bench.release(2)
    without_guard(bench, why)
    assert bench.place(2, 2).placement.gpus == (("GPU-0",) if shares else ("GPU-1",))


@pytest.mark.parametrize("settings", [{"sharing": "streams"}, {"memory_cap": False}])
@UNGUARDED
def test_a_site_that_wants_the_guard_instead_of_caps_shares_only_with_it(
    tmp_path: Path, why: str, settings: dict[str, object]
) -> None:
    """A site that wants neither has said so: there they share."""
    bench = Bench(tmp_path, **settings)
    assert bench.place(1, 2).placement.gpus == bench.place(2, 2).placement.gpus == ("GPU-0",)
    bench.release(2)
    without_guard(bench, why)
    by_fault = why in ("no monitor", "not reloaded")
    assert bench.place(2, 2).placement.gpus == (("GPU-1",) if by_fault else ("GPU-0",))


def test_a_valid_booking_is_believed_and_slurm_is_not_queried(bench: Bench) -> None:
    booking = Booking(
        kind="shared",
        memory_bytes=4 * GIB,
        cap_bytes=6 * GIB,
        estimate_bytes=3 * GIB,
        smact=0.25,
        profile_key="ab",
        shards=4,
        partitions=(partition_mark("gpu"),),
    )
    source, demand = wanted(
        bench, with_signed_booking("my words", signed_booking(booking, user_id=os.geteuid(), key=KEY))
    )
    assert source == "booking" and demand is not None
    assert (demand.kind, demand.booked_bytes, demand.estimate_bytes) == ("shared", 4 * GIB, 3 * GIB)
    assert (demand.cap_bytes, demand.smact) == (6 * GIB, 0.25)
    assert bench.slurm.queries == 0


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "rad2:shared:gpus=1:mem=1:try=0:retry=1:ask=1:0123456789abcdef",
        signed_booking(Booking(kind="shared", memory_bytes=GIB), user_id=4242, key=KEY),
        signed_booking(Booking(kind="shared", memory_bytes=GIB), user_id=os.geteuid(), key=b"x" * 32),
    ],
    ids=["none", "forged", "of another user", "under another key"],
)
def test_without_a_valid_booking_slurm_says_what_the_job_requested(bench: Bench, comment: str) -> None:
    source, demand = wanted(bench, comment, "gres:shard:3")
    assert source == "slurm" and demand is not None
    assert (demand.kind, demand.booked_bytes) == ("shared", 3 * GIB)


@pytest.mark.parametrize("gres", ["gres:shard:10", "gres:gpu:1", "gres/gpu:a100:1"])
def test_an_unknown_job_gets_whole_gpus(bench: Bench, gres: str) -> None:
    source, demand = wanted(bench, "", gres)
    assert source == "slurm" and demand is not None and (demand.kind, demand.gpus) == ("whole", 1)


def test_a_job_that_slurm_does_not_tell_of_gets_whole_gpus(bench: Bench) -> None:
    bench.slurm.answers = False
    assert wanted(bench, "", "")[0] == "assumed"
    source, demand = wanted(bench, "", gpu_indices=(0, 1))
    assert source == "assumed" and demand is not None and (demand.kind, demand.gpus) == ("whole", 2)


BOUND = Booking(kind="whole", shards=10, partitions=(partition_mark("gpu"),), estimate_bytes=GIB)


@pytest.mark.parametrize(
    ("booking", "given", "expected"),
    [
        (replace(BOUND, changed=True), "shard:1", ("shared", GIB)),
        (replace(BOUND, partitions=(partition_mark("other"),)), "shard:2", ("shared", 2 * GIB)),
        (replace(BOUND, kind="shared", memory_bytes=9 * GIB, changed=True), "shard:3", ("shared", 3 * GIB)),
        (
            replace(BOUND, kind="shared", memory_bytes=GIB, cap_bytes=9 * GIB, changed=True),
            "shard:3",
            ("shared", 3 * GIB),
        ),
        (replace(BOUND, kind="shared", memory_bytes=9 * GIB, changed=True), "gpu:1", ("whole", None)),
        (replace(BOUND, gpus=2, shards=0), "shard:1", ("shared", GIB)),
        (replace(BOUND, gpus=2, shards=0), "gpu:1", ("whole", None)),
    ],
    ids=[
        "changed",
        "another partition",
        "less than booked",
        "a cap",
        "more than booked",
        "one GPU index of two",
        "one GPU of two",
    ],
)
def test_what_slurm_gave_counts_where_the_booking_does_not_agree(
    bench: Bench, booking: Booking, given: str, expected: tuple[str, int | None]
) -> None:
    source, demand = wanted(bench, signed_booking(booking, user_id=os.geteuid(), key=KEY), given)
    assert source == "slurm" and demand is not None
    assert (demand.kind, demand.booked_bytes, demand.estimate_bytes) == (*expected, GIB)
    assert demand.cap_bytes is None, "what Slurm gave is all that it may have"
    assert bench.slurm.queries == 1


@pytest.mark.parametrize(
    ("node", "given", "expected"),
    [
        ("gpu:a100:4,shard:a100:12", "shard:3", ("whole", None)),
        ("gpu:h200:4,shard:40", "shard:3", ("shared", 3 * GIB)),
        ("gpu:h200:4,shard:40", "shard:h200:10", ("whole", None)),
        ("gpu:a100:2,gpu:h200:2", "shard:3", ("shared", 3 * GIB)),  # less than a GPU of the node's largest
        ("", "shard:3", ("shared", 3 * GIB)),
    ],
)
def test_all_of_a_gpu_is_as_many_shards_as_this_nodes_type_has(
    bench: Bench, node: str, given: str, expected: tuple[str, int | None]
) -> None:
    sizes = {"a100": GpuType(shards_per_gpu=3), "h200": GpuType(shards_per_gpu=10)}
    settings = replace(bench.config.partitions["gpu"], gpu_memory_mib=0, shards_per_gpu=0, gpus=sizes)
    bench.slurm.nodes_by_name = {"n0": NodeView(name="n0", gres=node)}
    bench.slurm.views[1] = JobView(job_id=1, user_id=os.geteuid(), state="RUNNING", gres=given)
    found = wanted_by(replace(bench.job(1), node="n0"), bench.config, settings, lambda: bench.slurm)
    assert found.demand is not None and (found.demand.kind, found.demand.booked_bytes) == expected


def test_mig_is_left_alone(bench: Bench) -> None:
    assert wanted(bench, "", "gres/gpu:1g.10gb:1") == ("slurm", None)


@pytest.mark.parametrize(
    ("gres", "gpu_indices", "expected"),
    [
        ("shard:6", (0, 1), ("shared", 2, 3 * GIB)),
        ("shard:7", (0, 1), ("whole", 2, None)),
        ("shard:20", (0, 1), ("whole", 2, None)),
        ("shard:6", (0,), ("shared", 1, 6 * GIB)),
        ("gpu:2", (0, 1), ("whole", 2, None)),
    ],
    ids=["a part of each", "unequal parts", "all of both", "both parts on one GPU", "GPUs of its own"],
)
def test_what_slurm_gave_a_job_that_shares_two_gpus(
    bench: Bench, gres: str, gpu_indices: tuple[int, ...], expected: tuple[str, int, int | None]
) -> None:
    booking = replace(BOUND, kind="shared", gpus=2, memory_bytes=3 * GIB, shards=6, changed=True)
    source, demand = wanted(bench, signed_booking(booking, user_id=os.geteuid(), key=KEY), gres, gpu_indices)
    assert source == "slurm" and demand is not None
    assert (demand.kind, demand.gpus, demand.booked_bytes) == expected


def test_shards_of_one_gpu_that_slurm_split_are_those_of_one(bench: Bench) -> None:
    booking = replace(BOUND, kind="shared", memory_bytes=6 * GIB, shards=6)
    _, demand = wanted(bench, signed_booking(booking, user_id=os.geteuid(), key=KEY), "shard:6", (0, 1))
    assert demand is not None and (demand.kind, demand.gpus, demand.booked_bytes) == ("shared", 1, 6 * GIB)
