"""The guard over several samples: what it writes down, whom it has stopped, what it says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeClock

from slurm_plugin.core.config.load import Config, Features, PartitionConfig, Paths, TelemetryConfig
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.requeued_jobs import Lack, Waiting, begin_waiting
from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import GIB
from slurm_plugin.guard.finding import Finding
from slurm_plugin.guard.incident_file import read_incidents
from slurm_plugin.guard.leaving import LEAVING_S, Leaving
from slurm_plugin.guard.watch import Guard
from slurm_plugin.monitor.attribution import Traced
from slurm_plugin.mps.daemon import LOG
from slurm_plugin.mps.quarantine import faults_of
from slurm_plugin.mps.state import State, write_state

ALICE, BOB = 1001, 1002
ME = Process.running(os.getpid())
GONE = Process(pid=2**22 - 1, started_ticks=1)
assert ME is not None


class Tells:
    """Remembers who was warned."""

    def __init__(self) -> None:
        self.told: list[int | None] = []

    def notify(self, finding: Finding) -> None:
        self.told.append(finding.job_id)


class Stops:
    """Remembers whom it was to stop, and what was written down by then."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.told: list[tuple[int | None, bool]] = []

    def stop(self, finding: Finding) -> None:
        self.told.append((finding.job_id, any(one.stopped for one in read_incidents(self.run))))


class Bench:
    """A node with one GPU, two jobs and a clock of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        source: str = "simulated",
        partition: PartitionConfig | None = None,
        users: tuple[int, int] = (ALICE, BOB),
        **more: object,
    ) -> None:
        self.users = users
        self.run, self.clock = folder / "run", FakeClock()
        self.config = Config(
            paths=Paths(run=str(self.run), log=str(folder / "log")),
            telemetry=TelemetryConfig(source=source),  # type: ignore[arg-type]
            partitions={"gpu": partition or PartitionConfig(collocate=True, shards_per_gpu=40)},
            **more,  # type: ignore[arg-type]
        )
        self.stops, self.tells = Stops(self.run), Tells()
        self.guard = self.again()

    def again(self) -> Guard:
        return Guard(self.config, clock=self.clock, stopper=self.stops, notifier=self.tells)

    def look(
        self,
        alice_gib: int,
        bob_gib: int = 1,
        *,
        restart: int = 0,
        cap_gib: int = 4,
        gpus: int = 1,
        mps: bool | None = None,
        also: Mapping[int, Traced] | None = None,
    ) -> None:
        rows = ((11, 1, self.users[0], alice_gib), (21, 2, self.users[1], bob_gib))
        reading = GpuReading(
            uuid="GPU-a",
            index=0,
            name="card",
            memory_total_bytes=40 * GIB,
            memory_used_bytes=(alice_gib + bob_gib) * GIB,
            time_s=self.clock.now_s(),
            processes=tuple(GpuProcess(pid=pid, memory_bytes=gib * GIB, mps=mps) for pid, _, _, gib in rows),
        )
        ledger = Ledger(
            allocations=tuple(
                Allocation(
                    job_id=job_id,
                    user_id=user,
                    kind="shared",
                    gpus=("GPU-a", "GPU-b")[:gpus],
                    gpu_indices=tuple(range(gpus)),
                    booked_bytes=4 * GIB,
                    created_s=self.clock.monotonic_s()
                    - 86_400,  # pytest stands for its process, and may be old
                    partition="gpu",
                    restart=restart,
                    cap_bytes=cap_gib * GIB,
                )
                for _, job_id, user, _ in rows
            )
        )
        traced = {
            pid: Traced(process=replace(ME, pid=pid), job_id=job_id, user_id=user, certain=True)
            for pid, job_id, user, _ in rows
        } | dict(also or {})
        self.guard.look((reading,), ledger, traced)
        self.clock.sleep(1.0)

    def events(self) -> list[dict[str, object]]:
        path = Path(self.config.paths.log) / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_who_shares_several_gpus_has_no_cap_that_he_could_pass_on_purpose(bench: Bench):
    """Such jobs run without MPS. On simulated GPUs they were ended for good as if it had held them."""
    for _ in range(3):
        bench.look(30, gpus=2)
    assert bench.stops.told == []
    bench.look(35, bob_gib=3, gpus=2)  # now the other cannot have what it booked
    bench.look(38, bob_gib=2, gpus=2)
    assert bench.stops.told == [(1, True)]


def test_a_thief_is_stopped_at_the_second_sample(bench: Bench):
    bench.look(30)
    assert bench.stops.told == []
    bench.look(30)
    assert bench.stops.told == [(1, True)]  # its Epilog finds written down why
    (one,) = read_incidents(bench.run)
    assert (one.kind, one.culprit, one.culprit_user_id, one.stopped, one.rerun) == (
        "memory",
        1,
        ALICE,
        True,
        True,
    )
    (event,) = bench.events()
    assert (event["hook"], event["event"], event["job"], event["response"]) == (
        "monitor",
        "overrun",
        1,
        "requeue",
    )


def test_honest_jobs_leave_no_trace(bench: Bench):
    for gib in (1, 4, 4, 2):
        bench.look(gib)
    assert (bench.stops.told, bench.events(), read_incidents(bench.run)) == ([], [], ())


@pytest.mark.parametrize("more", [{"mode": "observe"}, {"features": Features(guard=False)}])
def test_switched_off_it_only_says(tmp_path: Path, more: dict[str, object]):
    bench = Bench(tmp_path, **more)
    bench.look(30)
    bench.look(30)
    assert bench.stops.told == []
    assert [event["response"] for event in bench.events()] == ["warn"]
    assert bench.tells.told == ([] if more.get("mode") == "observe" else [1])


def test_switched_off_meanwhile_it_stops_nobody_to_the_end(tmp_path: Path):
    """An admin sets `guard = false` while a thief is being stopped, and restarts rad-monitor."""
    bench = Bench(tmp_path)
    for _ in range(2):
        bench.look(30)
    assert len(bench.stops.told) == 1
    bench.config = replace(bench.config, features=Features(guard=False))
    bench.guard = bench.again()
    bench.look(30)
    assert len(bench.stops.told) == 1


@pytest.mark.parametrize(
    ("settings", "stopped"),
    [({}, True), ({"sharing": "streams"}, False), ({"memory_cap": False}, False)],
)
def test_a_job_without_a_cap_is_not_stopped_for_what_nobody_else_lacks(
    tmp_path: Path, settings: dict[str, object], stopped: bool
):
    """Past a cap one goes on purpose; without one a job may honestly need more than anybody thought."""
    plain = PartitionConfig(collocate=True, shards_per_gpu=40)
    bench = Bench(tmp_path, partition=replace(plain, **settings))  # type: ignore[arg-type]
    for _ in range(2):
        bench.look(30)
    assert bool(bench.stops.told) == stopped
    assert [event["response"] for event in bench.events()] == ["requeue" if stopped else "warn"]
    assert [str(event["detail"]).endswith(", stopped") for event in bench.events()] == [stopped]


@pytest.mark.parametrize(
    ("cap", "daemon", "stopped"), [(4 * GIB, ME, True), (None, ME, False), (4 * GIB, GONE, False)]
)
def test_only_whom_a_server_of_ours_caps_goes_past_his_cap_on_purpose(
    tmp_path: Path, cap: int | None, daemon: Process, stopped: bool
):
    """A daemon that has ended caps nobody."""
    bench = Bench(tmp_path, source="nvml")
    write_state(bench.run / "mps" / "GPU-a" / str(ALICE), State(daemon=daemon, server=ME, jobs={1: cap}))
    for _ in range(2):
        bench.look(30)
    assert bool(bench.stops.told) == stopped


@pytest.mark.parametrize(("daemon", "stopped"), [(ME, True), (GONE, False)])
def test_whose_daemon_has_ended_goes_past_mps_in_all_honesty(tmp_path: Path, daemon: Process, stopped: bool):
    """What such a job starts from then on runs without MPS, and nothing tells it."""
    plain = PartitionConfig(collocate=True, shards_per_gpu=40, on_outside_mps="end")
    bench = Bench(tmp_path, source="nvml", partition=plain)
    write_state(bench.run / "mps" / "GPU-a" / str(ALICE), State(daemon=daemon, server=ME, jobs={1: 4 * GIB}))
    for _ in range(2):
        bench.look(2, mps=False)
    assert bool(bench.stops.told) == stopped


def test_what_is_read_of_mps_while_gpus_are_simulated_is_nobodys_fault(tmp_path: Path):
    bench = Bench(tmp_path, users=(ALICE, ALICE))
    bench.look(1)
    tell_fault(bench, 11, 11, 21)
    bench.look(1)
    assert read_incidents(bench.run) == ()


def test_a_restarted_monitor_goes_on(bench: Bench):
    bench.look(30)
    bench.guard = bench.again()
    bench.look(30)
    bench.look(30)
    assert bench.stops.told == [(1, True)]
    assert len(read_incidents(bench.run)) == 1


def test_an_honest_surprise_is_not_stopped_without_a_word_of_it(bench: Bench):
    """Its Epilog would take it for cancelled, and it would be lost; the neighbour that it hurts runs again."""
    bench.run.mkdir()
    (bench.run / "monitor").write_text("no folder")
    for _ in range(8):
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            bench.look(37, cap_gib=40)
        bench.clock.sleep(1.0)
    assert bench.stops.told == []
    (bench.run / "monitor").unlink()
    for _ in range(6):
        bench.look(37, cap_gib=40)
    assert bench.stops.told[0] == (1, True)


def test_who_was_being_stopped_when_the_monitor_ended_is_stopped_to_the_end(bench: Bench):
    """Its training was ended, and its script may go on with the next line."""
    for _ in range(2):
        bench.look(30)
    bench.guard = bench.again()
    bench.look(1)
    assert bench.stops.told == [(1, True), (1, True)]
    bench.look(1)
    assert len(bench.stops.told) == 2
    bench.guard = bench.again()
    bench.look(1, restart=1)
    assert len(bench.stops.told) == 2, "its rerun is another run"


def test_what_cannot_be_written_down_is_stopped_all_the_same(bench: Bench):
    bench.look(4)
    bench.run.mkdir()
    (bench.run / "monitor").write_text("no folder")
    with pytest.raises(OSError, match=r"File exists|Not a directory"):
        bench.look(30)
    with pytest.raises(OSError, match=r"File exists|Not a directory"):
        bench.look(30)
    assert [job for job, _ in bench.stops.told] == [1]


def test_who_was_told_to_go_leaves_for_a_quarter_of_a_minute_and_no_process_of_no_job_does():
    leaving = Leaving(())
    finding = Finding(
        kind="memory",
        gpu="GPU-a",
        job_id=1,
        user_id=ALICE,
        restart=2,
        used_bytes=2,
        limit_bytes=1,
        free_bytes=0,
        processes=(ME,),
        response="requeue",
    )
    leaving.notified(finding, 100.0)
    leaving.notified(replace(finding, job_id=None), 100.0)
    assert set(leaving.runs(100.0)) == set(leaving.runs(100.0 + LEAVING_S)) == {(1, 2)}
    assert set(leaving.runs(100.0 + LEAVING_S + 0.1)) == set()


def tell_fault(
    bench: Bench,
    culprit: int,
    *ended: int,
    user: int = ALICE,
    jobs: tuple[int, ...] = (1,),
    key: str | None = None,
    users: dict[int, int] | None = None,
    by: int | None = None,
) -> None:
    place = bench.run / "mps" / "GPU-a" / (key or str(user))
    write_state(place, State(daemon=ME, server=ME, jobs=dict.fromkeys(jobs, 4 * GIB), users=users or {}))
    lines = [
        f"Client {{PID: {culprit}, Context: 1}} encountered a fatal GPU error.",
        "The following client process have a sticky error set:",
        *map(str, ended),
    ]
    text = "".join(f"[2026-11-22 04:42:39.767 Server  1122] {line}\n" for line in lines)
    if by is not None:
        connects = f"NEW CLIENT {culprit} from user {by}: Server already exists"
        text = f"[2026-11-22 04:42:38.767 Control  1100] {connects}\n{text}"
    (place / LOG).write_text(text)


def test_a_fault_that_an_mps_server_told_of(tmp_path: Path):
    bench = Bench(tmp_path, source="nvml", users=(ALICE, ALICE))
    bench.look(1)
    tell_fault(bench, 11, 11, 21)
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.kind, one.gpu, one.culprit, one.culprit_user_id, one.victims) == (
        "fault",
        "GPU-a",
        1,
        ALICE,
        (2,),
    )
    assert one.detail.startswith("job 1 (pid 11)")


@pytest.mark.parametrize("again", [False, True])
def test_jobs_that_ended_with_a_fault_before_anybody_saw_them(tmp_path: Path, again: bool):
    """Found on an H100 whose memory was gone: five jobs failed within a second of their start, and all as at fault.

    Whoever of them was: each may run again. A job whose process runs on did not end with them.
    """
    bench = Bench(tmp_path, source="nvml", users=(ALICE, ALICE))
    bench.look(1)
    if again:  # it was seen in an earlier run, under another pid
        process = Process(pid=99, started_ticks=1)
        bench.look(1, also={99: Traced(process=process, job_id=8, user_id=ALICE, certain=True)})
    tell_fault(bench, 71, 71, 81, jobs=(1, 7, 8))
    bench.look(1)
    sure, unsure = read_incidents(bench.run)
    assert (sure.kind, sure.culprit, sure.victims) == ("fault", None, ())
    assert (unsure.kind, unsure.culprit, unsure.victims) == ("server", None, (7, 8))


def test_who_is_the_only_one_that_nobody_saw_is_at_fault_himself(tmp_path: Path):
    bench = Bench(tmp_path, source="nvml", users=(ALICE, ALICE))
    bench.look(1)
    tell_fault(bench, 71, 71, 11, jobs=(1, 2, 7))
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.kind, one.culprit, one.victims) == ("fault", None, (1,))


def test_who_ended_unseen_with_anothers_fault_is_its_victim(tmp_path: Path):
    bench = Bench(tmp_path, source="nvml", users=(ALICE, ALICE))
    bench.look(1)
    tell_fault(bench, 11, 11, 71, jobs=(1, 2, 7))
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.kind, one.culprit, one.victims) == ("fault", 1, (7,))


def test_a_log_that_names_another_users_processes_blames_nobody_of_them(tmp_path: Path):
    """Whoever gets words into the log of his own server makes himself no victim of another user."""
    bench = Bench(tmp_path, source="nvml", users=(BOB, ALICE))
    bench.look(1)
    tell_fault(bench, 11, 11, 21)
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.culprit, one.culprit_user_id, one.victims) == (None, ALICE, (2,))
    assert one.detail.startswith("a process of no job (pid 11)")


@pytest.mark.parametrize("epilogs_first", [False, True])
def test_a_fault_on_a_server_of_several_users_blames_the_one_job(tmp_path: Path, epilogs_first: bool):
    """Its Epilogs may release the jobs before the log is read."""
    bench = Bench(tmp_path, source="nvml", users=(ALICE, BOB))
    users = {1: ALICE, 2: BOB}
    place = bench.run / "mps" / "GPU-a" / "all"
    write_state(place, State(daemon=ME, server=ME, jobs=dict.fromkeys(users, 4 * GIB), users=users))
    bench.look(1)
    left = () if epilogs_first else (1, 2)
    tell_fault(bench, 21, 21, 11, key="all", jobs=left, users={job: users[job] for job in left})
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.kind, one.culprit, one.culprit_user_id, one.victims) == ("fault", 2, BOB, (1,))


def test_a_fault_on_a_shared_server_is_recorded_while_its_job_runs(tmp_path: Path):
    """Its job may go on for hours, be cancelled or end with status 0, and cause the next one before that."""
    bench = Bench(tmp_path, source="nvml", users=(ALICE, BOB))
    tell_fault(bench, 21, 21, 11, key="all", jobs=(1, 2), users={1: ALICE, 2: BOB})
    bench.look(1, restart=3)
    (one,) = faults_of(bench.run, BOB)
    assert (one.job_id, one.restart) == (2, 3)
    assert faults_of(bench.run, ALICE) == ()


@pytest.mark.parametrize("key", [str(ALICE), "j2"])
def test_a_fault_that_ends_nobody_elses_job_keeps_nobody_apart(tmp_path: Path, key: str):
    bench = Bench(tmp_path, source="nvml", users=(ALICE, ALICE))
    tell_fault(bench, 21, 21, key=key, jobs=(2,), users={2: ALICE})
    bench.look(1)
    assert read_incidents(bench.run)[0].culprit == 2
    assert faults_of(bench.run, ALICE) == ()


def test_a_process_that_no_sample_showed_is_its_users(tmp_path: Path):
    """A process of less than a second beside one that stays: no sample knows its job, and the job misses none."""
    bench = Bench(tmp_path, source="nvml", users=(ALICE, BOB))
    tell_fault(bench, 71, 71, 11, key="all", jobs=(1, 2), users={1: ALICE, 2: BOB}, by=BOB)
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.culprit, one.culprit_user_id, one.victims) == (2, BOB, (1,))
    assert [one.job_id for one in faults_of(bench.run, BOB)] == [2]


def test_of_several_jobs_of_its_user_each_may_have_been_at_fault(tmp_path: Path):
    bench = Bench(tmp_path, source="nvml", users=(BOB, BOB))
    users = {1: BOB, 2: BOB, 7: ALICE}
    tell_fault(bench, 71, 71, 72, key="all", jobs=tuple(users), users=users, by=BOB)
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.culprit, one.culprit_user_id, one.victims) == (None, BOB, (7,))
    assert one.detail.startswith("an unidentified process")
    assert sorted(one.job_id for one in faults_of(bench.run, BOB)) == [1, 2]


def test_a_user_without_a_job_on_the_server_is_no_reason_to_keep_anybody_apart(tmp_path: Path):
    bench = Bench(tmp_path, source="nvml", users=(ALICE, BOB))
    tell_fault(bench, 71, 71, 11, key="all", jobs=(1, 2), users={1: ALICE, 2: BOB}, by=4711)
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.culprit, one.culprit_user_id, one.victims) == (None, None, (1,))
    assert not (bench.run / "mps-faults").exists()


def test_a_fault_that_cannot_be_recorded_costs_no_incident(tmp_path: Path):
    bench = Bench(tmp_path, source="nvml", users=(ALICE, BOB))
    bench.run.mkdir()
    (bench.run / "mps-faults").touch()
    tell_fault(bench, 21, 21, 11, key="all", jobs=(1, 2), users={1: ALICE, 2: BOB})
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert one.culprit == 2


def test_a_shared_servers_log_blames_no_job_that_was_never_on_it(tmp_path: Path):
    bench = Bench(tmp_path, source="nvml", users=(ALICE, BOB))
    bench.look(1)
    tell_fault(bench, 21, 21, 11, key="all", jobs=(1,), users={1: ALICE})
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.culprit, one.culprit_user_id, one.victims) == (None, None, (1,))


def test_who_drops_his_own_limit_up_to_a_neighbours_is_ended(tmp_path: Path):
    """Their server allows each client the largest limit among its jobs; the guard holds each job to its own."""
    bench = Bench(tmp_path, source="nvml", users=(ALICE, BOB))
    state = State(daemon=ME, server=ME, jobs={1: 4 * GIB, 2: 16 * GIB}, users={1: ALICE, 2: BOB})
    write_state(bench.run / "mps" / "GPU-a" / "all", state)
    for _ in range(2):
        bench.look(15, mps=True)
    assert bench.stops.told == [(1, True)]
    (one,) = [each for each in read_incidents(bench.run) if each.stopped]
    assert (one.kind, one.culprit, one.rerun) == ("memory", 1, True)


@pytest.mark.parametrize(("daemon", "server"), [(ME, GONE), (GONE, ME)])
def test_a_server_that_died_with_jobs_on_it(tmp_path: Path, daemon: Process, server: Process):
    """Its clients end with it, and with its daemon."""
    bench = Bench(tmp_path, source="nvml")
    place = bench.run / "mps" / "GPU-a" / str(ALICE)
    write_state(place, State(daemon=ME, server=ME, jobs={1: 4 * GIB}))
    bench.look(1)
    assert read_incidents(bench.run) == ()
    write_state(place, State(daemon=daemon, server=server, jobs={}))
    bench.look(1)
    assert read_incidents(bench.run) == ()  # it was stopped: nobody was on it
    write_state(place, State(daemon=daemon, server=server, jobs={1: 4 * GIB}))
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.kind, one.culprit, one.victims) == ("server", None, (1,))


def test_a_daemon_whose_jobs_lost_their_epilog_is_given_back(tmp_path: Path):
    bench = Bench(tmp_path, source="nvml")
    own, orphan = bench.run / "mps" / "GPU-a" / str(ALICE), bench.run / "mps" / "GPU-a" / str(BOB)
    write_state(own, State(jobs={1: 4 * GIB}))
    write_state(orphan, State(jobs={99: 4 * GIB}))
    for _ in range(121):
        bench.look(1)
    assert orphan.exists()
    bench.look(1)
    bench.look(1)
    assert (own.exists(), orphan.exists()) == (True, False)


def test_who_is_beyond_his_cap_makes_way_for_a_job_that_was_put_back(bench: Bench):
    """The Prolog noted what that job lacks; the ledger does not know of it."""
    for _ in range(3):
        bench.look(30, gpus=2)
    lack = Lack(since_s=bench.clock.now_s(), need_bytes=20 * GIB, gpus=("GPU-a",))
    bench.run.mkdir(exist_ok=True)
    begin_waiting(bench.run, Waiting(job_id=3, earliest_s=bench.clock.now_s(), restart=1, lack=lack))
    for _ in range(2):
        bench.look(30, gpus=2)
    assert bench.stops.told == [(1, True)]
