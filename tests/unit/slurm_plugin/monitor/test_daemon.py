"""One sample after the other: window, job records, owners, restarts, a full disk."""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_proc import cgroups, process
from fakes import FakeClock

from slurm_plugin.core.clock import Deadline
from slurm_plugin.core.config.load import Config, Features, PartitionConfig
from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.store import LedgerStore
from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.records.gpu import GpuCounters, GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.monitor.attribution import JobFinder, Traced
from slurm_plugin.monitor.daemon import watch
from slurm_plugin.monitor.monitor import Monitor
from slurm_plugin.monitor.node_state import NodeState
from slurm_plugin.monitor.window import (
    JobUsage,
    forget_job,
    guarded_now,
    job_path,
    read_job,
    read_window,
    window_path,
    write_job,
    write_window,
)

GIB = 2**30


class Script:
    """Telemetry that gives chosen readings."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.readings: tuple[GpuReading, ...] = ()
        self.fails = False

    def read(self) -> tuple[GpuReading, ...]:
        if self.fails:
            raise DeviceError("the driver did not answer")
        return self.readings


class Owners(JobFinder):
    """A finder that knows the answers."""

    def __init__(self, jobs: dict[int, int]) -> None:
        self.jobs = jobs

    def trace(
        self, readings: Iterable[GpuReading], *, users: Mapping[int, int] | None = None
    ) -> dict[int, Traced]:
        pids = {process.pid for reading in readings for process in reading.processes}
        return {
            pid: Traced(
                process=Process(pid=pid, started_ticks=5),
                user_id=1000,
                job_id=self.jobs.get(pid),
                certain=True,
            )
            for pid in pids
        }


class Bench:
    """A monitor with everything around it under control."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.clock = FakeClock()
        self.script = Script(self.clock)
        self.finder = Owners({11: 1, 12: 1, 21: 2})
        self.monitor = self.again()

    def again(self) -> Monitor:
        return Monitor(self.script, self.run, clock=self.clock, window_s=90, finder=self.finder)

    def sample(self, *readings: GpuReading) -> None:
        self.script.readings = readings
        self.monitor.sample()
        self.clock.sleep(1.0)

    def usage(self, job_id: int) -> JobUsage:
        usage = read_job(self.run, job_id)
        assert usage is not None
        return usage


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def gpu(
    smact: float | None = 0.5,
    processes: dict[int, int | None] | None = None,
    *,
    uuid: str = "GPU-a",
    energy_j: float | None = None,
) -> GpuReading:
    rows = tuple(GpuProcess(pid=pid, memory_bytes=memory) for pid, memory in (processes or {}).items())
    return GpuReading(
        uuid=uuid,
        index=0,
        name="H100",
        memory_total_bytes=140 * GIB,
        memory_used_bytes=sum(memory or 0 for memory in (processes or {}).values()),
        time_s=0.0,
        smact=smact,
        smact_source="simulated",
        processes=rows,
        counters=GpuCounters(energy_j=energy_j),
    )


def test_the_window_averages_what_lies_in_it(bench: Bench):
    for _ in range(90):
        bench.sample(gpu(1.0))
    for _ in range(45):
        bench.sample(gpu(0.0))
    window = read_window(bench.run, now_s=bench.clock.now_s())
    assert window is not None
    assert window[0].smact == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_the_window_is_as_long_where_the_clock_was_set(bench: Bench, ahead_s: float):
    """Set back by an hour, the mean was one of all that came until the clock was where it had been."""
    for _ in range(90):
        bench.sample(gpu(1.0))
    bench.clock.ahead_s = ahead_s
    for _ in range(45):
        bench.sample(gpu(0.0))
    window = read_window(bench.run, now_s=bench.clock.now_s())
    assert window is not None and window[0].smact == pytest.approx(0.5, abs=0.02)
    for _ in range(45):
        bench.sample(gpu(0.0))
    window = read_window(bench.run, now_s=bench.clock.now_s())
    assert window is not None and window[0].smact == 0.0


def test_the_window_keeps_the_last_memory(bench: Bench):
    bench.sample(gpu(1.0, {11: GIB}))
    bench.sample(gpu(1.0, {11: 3 * GIB}))
    window = read_window(bench.run, now_s=bench.clock.now_s())
    assert window is not None
    assert window[0].memory_used_bytes == 3 * GIB
    assert window[0] == dataclasses.replace(gpu(1.0, {11: 3 * GIB}), smact=1.0)


def test_a_stale_window_is_none(bench: Bench):
    bench.sample(gpu())
    assert read_window(bench.run, now_s=bench.clock.now_s() + 30.0) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"time_s": null, "gpus": []}', '{"time_s": 1000000, "gpus": [{}]}']
)
def test_a_broken_window_is_none(bench: Bench, text: str):
    window_path(bench.run).parent.mkdir(parents=True)
    window_path(bench.run).write_text(text)
    assert read_window(bench.run, now_s=1_000_000.0) is None


def test_a_jobs_processes_count_together(bench: Bench):
    bench.sample(gpu(0.8, {11: 2 * GIB, 12: GIB, 21: 5 * GIB, 99: 7 * GIB}))
    bench.sample(gpu(0.4, {11: GIB, 12: GIB, 21: 6 * GIB}))
    assert bench.usage(1).peak_bytes == 3 * GIB
    assert bench.usage(2).peak_bytes == 6 * GIB
    assert bench.usage(1).mean_smact == pytest.approx(0.3)
    assert (bench.usage(1).samples, bench.usage(1).gpus) == (2, ("GPU-a",))
    assert not job_path(bench.run, 99).exists()


def two_that_share(bench: Bench, *, sliced: Sequence[str] = (), **first: Any) -> None:
    store = LedgerStore(bench.run, clock=bench.clock, boot_id="b")
    ledger = Ledger()
    for job_id, smact, more in ((1, 0.6, first), (2, 0.2, {})):
        allocation = Allocation(
            job_id=job_id,
            user_id=1000,
            kind="shared",
            gpus=("GPU-a",),
            gpu_indices=(0,),
            booked_bytes=4 * GIB,
            created_s=0.0,
            smact=smact,
            partition="gpu",
        )
        ledger = ledger.reserve(dataclasses.replace(allocation, **more), {"GPU-a": 140 * GIB})
    with store.locked(Deadline(bench.clock, 1.0)):
        store.write(ledger)
    bench.monitor = Monitor(
        bench.script, bench.run, clock=bench.clock, finder=bench.finder, store=store, sliced=sliced
    )


@pytest.mark.parametrize(
    ("how", "samples"),
    [
        ({}, 1),
        ({"sliced": ("other",)}, 1),
        ({"sliced": ("gpu",)}, 0),
        ({"uncapped": True}, 0),
    ],
    ids=["under MPS", "another partition's", "in time slices", "MPS did not start"],
)
def test_a_job_that_shares_without_mps_shows_nothing_of_itself(
    bench: Bench, how: dict[str, Any], samples: int
):
    two_that_share(bench, **how)
    bench.sample(gpu(0.4, {11: GIB, 21: GIB}))
    assert [bench.usage(job).own_samples for job in (1, 2)] == [samples, samples]


def test_a_gpus_activity_is_split_by_what_the_ledger_expects(bench: Bench):
    two_that_share(bench)
    bench.sample(gpu(0.4, {11: GIB, 21: GIB}))
    assert bench.usage(1).mean_smact == pytest.approx(0.3) == bench.usage(1).own_smact
    assert bench.usage(2).mean_smact == pytest.approx(0.1) == bench.usage(2).own_smact


def test_the_95th_percentile(bench: Bench):
    for number in range(100):
        bench.sample(gpu(0.9 if number >= 90 else 0.1, {11: GIB}))
    assert bench.usage(1).p95_smact == pytest.approx(0.9, abs=0.03)


def test_memory_that_the_driver_does_not_tell(bench: Bench):
    bench.sample(gpu(0.5, {11: None}))
    assert bench.usage(1).peak_bytes is None


def test_time_next_to_another_users_job_is_counted(bench: Bench):
    for _ in range(4):
        bench.sample(gpu(0.5, {11: GIB, 12: GIB}))
    assert bench.usage(1).shared_s == 0.0, "two processes of one job"
    for _ in range(4):
        bench.sample(gpu(0.5, {11: GIB, 21: GIB}))
    assert (bench.usage(1).shared_s, bench.monitor.shared_s(1)) == (4.0, 4.0)
    bench.clock.sleep(3600.0)
    bench.sample(gpu(0.5, {11: GIB, 21: GIB}))
    assert bench.usage(1).shared_s == 9.0, "the monitor was away, and what happened is not known"
    bench.sample(gpu(0.5, {11: GIB}), gpu(0.5, {21: GIB}, uuid="GPU-b"))
    assert bench.usage(1).shared_s == 9.0
    assert bench.monitor.shared_s(7) == 0.0


def test_energy_is_shared(bench: Bench):
    bench.sample(gpu(0.5, {11: GIB, 21: GIB}, energy_j=100.0))
    bench.sample(gpu(0.5, {11: GIB, 21: GIB}, energy_j=400.0))
    assert bench.usage(1).energy_j == pytest.approx(150.0)
    bench.sample(gpu(0.5, {11: GIB}, energy_j=0.0))  # the driver was loaded again
    assert bench.usage(1).energy_j == pytest.approx(150.0)


def test_a_record_goes_on_after_a_restart(bench: Bench):
    bench.sample(gpu(0.5, {11: 4 * GIB}))
    bench.monitor = bench.again()
    bench.sample(gpu(0.5, {11: GIB}))
    assert (bench.usage(1).peak_bytes, bench.usage(1).samples) == (4 * GIB, 2)


def test_a_record_starts_afresh_once_the_epilog_took_it(bench: Bench):
    bench.sample(gpu(0.5, {11: 4 * GIB}))
    forget_job(bench.run, 1)
    bench.sample(gpu(0.5))
    bench.sample(gpu(0.5, {11: GIB}))
    assert bench.usage(1).peak_bytes == GIB


def test_a_record_that_no_epilog_took_goes_after_a_day(bench: Bench):
    bench.sample(gpu(0.5, {11: GIB}))
    bench.clock.sleep(25 * 3600.0)
    bench.sample(gpu(0.5))
    assert read_job(bench.run, 1) is None


def test_a_full_disk_loses_no_peak(bench: Bench):
    bench.sample(gpu(0.5))
    window_path(bench.run).unlink()
    window_path(bench.run).mkdir()  # nothing can be renamed onto a folder, not even by root
    with pytest.raises(DeviceError):
        bench.sample(gpu(0.5, {11: 4 * GIB}))
    window_path(bench.run).rmdir()
    bench.sample(gpu(0.5, {11: GIB}))
    assert bench.usage(1).peak_bytes == 4 * GIB


def test_a_broken_record_is_none(tmp_path: Path):
    write_job(tmp_path, JobUsage(job_id=1, first_s=0.0, last_s=0.0))
    job_path(tmp_path, 1).write_text(json.dumps({"job_id": 1, "colour": "red"}))
    assert read_job(tmp_path, 1) is None


def test_trouble_is_said_once_and_its_end_too(bench: Bench, caplog: pytest.LogCaptureFixture):
    class Stops(list[int]):
        """True after six looks; the driver is back after three."""

        looks = 0

        def __bool__(self) -> bool:
            self.looks += 1
            bench.script.fails = self.looks <= 3
            return self.looks > 6

    with caplog.at_level(logging.INFO):
        watch(bench.monitor, bench.clock, stopped=Stops())
    assert [record.getMessage() for record in caplog.records] == [
        "the driver did not answer",
        "all is well again",
    ]
    assert bench.clock.slept == [1.0] * 6


def test_a_bug_in_a_sample_ends_no_monitor(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    stopped: list[int] = []

    def trace(*_: object, **__: object) -> dict[int, Traced]:
        if len(bench.clock.slept) == 2:
            stopped.append(1)
        raise ValueError("a mount point of a user's")

    monkeypatch.setattr(bench.finder, "trace", trace)
    watch(bench.monitor, bench.clock, stopped=stopped)
    assert [bool(record.exc_info) for record in caplog.records] == [True], "logged once, with its traceback"


def test_a_record_that_cannot_be_removed_ends_no_monitor(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """As in a folder that is read-only by now, even of a record that its Epilog took before."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    bench.sample(gpu(0.5, {11: GIB}))
    forget_job(bench.run, 1)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        bench.monitor._forget(bench.clock.now_s())
    bench.sample(gpu(0.5, {11: GIB}))
    assert bench.usage(1).samples == 1


def test_exporter_gets_every_sample(bench: Bench):
    shown: list[NodeState] = []

    class Exporter:
        def show(self, seen: NodeState) -> None:
            shown.append(seen)

    bench.monitor = Monitor(
        bench.script, bench.run, clock=bench.clock, finder=bench.finder, exporter=Exporter()
    )
    bench.sample(gpu(0.5, {11: GIB}))
    (seen,) = shown
    assert (len(seen.readings), list(seen.usages), seen.owners) == (1, [1], {11: 1})
    assert seen.ledger == Ledger()


class Recorder:
    """A guard that keeps what it is shown."""

    def __init__(self, run: Path, *, fails: Exception | None = None) -> None:
        self.run, self.fails = run, fails
        self.shown: list[tuple[Ledger, Mapping[int, Traced]]] = []
        self.window_before: bool | None = None

    def look(
        self,
        readings: Sequence[GpuReading],
        ledger: Ledger,
        traced: Mapping[int, Traced],
        usages: Mapping[int, JobUsage],
    ) -> None:
        self.shown.append((ledger, traced))
        self.window_before = window_path(self.run).exists()
        if self.fails is not None:
            raise self.fails


def guarded(bench: Bench, guard: Recorder, *, ledger: bool) -> None:
    store = LedgerStore(bench.run, clock=bench.clock, boot_id="b")
    if ledger:
        with store.locked(Deadline(bench.clock, 1.0)):
            store.write(Ledger())
    bench.monitor = Monitor(
        bench.script,
        bench.run,
        clock=bench.clock,
        finder=bench.finder,
        store=store,
        guard=guard,
        guarded=["gpu"],
    )
    bench.sample(gpu(0.5, {11: GIB}))


def test_the_guard_judges_before_the_window_is_reported(bench: Bench):
    guard = Recorder(bench.run)
    guarded(bench, guard, ledger=True)
    ((ledger, traced),) = guard.shown
    assert (ledger, traced[11].job_id, guard.window_before) == (Ledger(), 1, False)


def test_a_ledger_that_is_guessed_judges_no_job(bench: Bench):
    guard = Recorder(bench.run)
    guarded(bench, guard, ledger=False)
    assert guard.shown == []


def test_a_guard_that_cannot_write_stops_no_monitor(bench: Bench):
    full = OSError("No space left on device")
    guarded(bench, Recorder(bench.run, fails=full), ledger=True)
    assert read_window(bench.run, now_s=bench.clock.now_s()) is not None
    assert guarded_now(bench.run, ("gpu",), now_s=bench.clock.now_s()), "it stops jobs all the same"


def test_a_bug_of_the_guard_stops_no_monitor_and_no_job_relies_on_the_guard(
    bench: Bench, caplog: pytest.LogCaptureFixture
):
    """One over a job that stays ended every monitor that systemd started, and readings and reconciliations with it."""
    guard = Recorder(bench.run, fails=ZeroDivisionError("a bug"))
    guarded(bench, guard, ledger=True)
    bench.sample(gpu(0.5, {11: GIB}))
    assert read_window(bench.run, now_s=bench.clock.now_s()) is not None
    assert guarded_now(bench.run, ("gpu",), now_s=bench.clock.now_s()) == frozenset()
    assert [bool(record.exc_info) for record in caplog.records] == [True], "logged once, with its traceback"
    guard.fails = None
    bench.sample(gpu(0.5, {11: GIB}))
    assert guarded_now(bench.run, ("gpu",), now_s=bench.clock.now_s()) == {"gpu"}


def test_the_window_says_whose_jobs_the_guard_stops(bench: Bench):
    def acts(partition: str, *, age_s: float = 0.0) -> bool:
        return bool(guarded_now(bench.run, (partition,), now_s=bench.clock.now_s() + age_s))

    assert not acts("gpu"), "there is no monitor"
    bench.sample(gpu())
    assert not acts("gpu"), "it has no guard"
    guarded(bench, Recorder(bench.run), ledger=True)
    assert (acts("gpu"), acts("calm"), acts("gpu", age_s=30.0)) == (True, False, False)
    write_window(bench.run, (), now_s=bench.clock.now_s())
    assert acts("calm"), "an older release says nothing of it"


def test_a_guard_acts_where_rad_toml_lets_it():
    partitions = {"gpu": PartitionConfig(), "calm": PartitionConfig(on_overrun="warn")}
    config = Config(partitions=partitions)
    assert config.guarded == ("gpu",)
    assert dataclasses.replace(config, mode="observe").guarded == ()
    assert dataclasses.replace(config, features=Features(guard=False)).guarded == ()


class TestJobFinder:
    """Against processes as /proc shows them."""

    def reading(self, *pids: int) -> list[GpuReading]:
        return [gpu(processes=dict.fromkeys(pids, GIB))]

    def process(
        self, proc: Path, pid: int, *, cgroup: str = "0::/\n", ticks: int = 5, **environment: str
    ) -> None:
        process(proc, pid, users=[os.geteuid()] * 4, cgroup=cgroup, ticks=ticks, environment=environment)

    @pytest.mark.skipif(os.geteuid() != 0, reason="Slurm's cgroups are root's")
    def test_by_cgroup_of_both_versions(self, tmp_path: Path):
        proc, one, two = (
            tmp_path / "proc",
            "/slurm/uid_1000/job_123",
            "/system.slice/slurmstepd.scope/job_124",
        )
        cgroups(proc, tmp_path / "v1", one, version=1)
        cgroups(proc, tmp_path / "v2", two)
        self.process(proc, 5, cgroup=f"3:memory:{one}/step_0/task_0\n0::/\n", SLURM_JOB_ID="9")
        self.process(proc, 6, cgroup=f"0::{two}/step_batch/user/task_0\n")
        assert JobFinder(proc).owners(self.reading(5, 6)) == {5: 123, 6: 124}

    def test_by_environment(self, tmp_path: Path):
        self.process(tmp_path, 5, cgroup="0::/user.slice\n", A="1", SLURM_JOB_ID="77", B="2")
        assert JobFinder(tmp_path).owners(self.reading(5)) == {5: 77}

    def test_another_users_word_counts_nothing(self, tmp_path: Path):
        self.process(tmp_path, 5, SLURM_JOB_ID="77")
        finder = JobFinder(tmp_path)
        owner = os.geteuid() or 1
        self.process(tmp_path, 6, SLURM_JOB_ID="77")
        process(tmp_path, 6, users=[owner] * 4, environment={"SLURM_JOB_ID": "77"})
        assert finder.owners(self.reading(6), users={77: owner + 1}) == {}
        assert finder.owners(self.reading(6), users={}) == {}, "an unknown job"
        assert finder.owners(self.reading(6), users={77: owner}) == {6: 77}
        assert not finder.trace(self.reading(6), users={77: owner})[6].certain

    def test_unmanaged_processes_and_the_gone_have_no_job(self, tmp_path: Path):
        self.process(tmp_path, 5)
        assert JobFinder(tmp_path).owners(self.reading(5, 404)) == {}

    def test_a_reused_pid_is_looked_at_again(self, tmp_path: Path):
        finder = JobFinder(tmp_path)
        self.process(tmp_path, 5, SLURM_JOB_ID="77", ticks=5)
        finder.owners(self.reading(5))
        self.process(tmp_path, 5, SLURM_JOB_ID="78", ticks=6)
        assert finder.owners(self.reading(5)) == {5: 78}

    def test_a_real_process(self):
        # It says when it runs: in the moment of exec, /proc shows no environment yet.
        argv = [sys.executable, "-c", "import time; print(flush=True); time.sleep(30)"]
        with subprocess.Popen(argv, env={"SLURM_JOB_ID": "4242"}, stdout=subprocess.PIPE) as child:
            try:
                assert child.stdout is not None and child.stdout.readline() == b"\n"
                assert JobFinder().owners(self.reading(child.pid)) == {child.pid: 4242}
            finally:
                child.kill()
