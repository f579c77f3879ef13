"""The guard over several samples: what it writes down, which it has stopped, what it says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.config.load import Config, Features, PartitionConfig, Paths, TelemetryConfig
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.requeued_jobs import Lack, RequeuedJob, begin_waiting
from slurm_plugin.core.placement.server_keys import user_of
from slurm_plugin.core.process.identity import Process
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import GIB
from slurm_plugin.guard.incident_file import read_incidents
from slurm_plugin.guard.leaving import LEAVING_S, Leaving
from slurm_plugin.guard.mps_faults import SampledProcess, fault_incident
from slurm_plugin.guard.violation import Violation
from slurm_plugin.guard.watch import Guard
from slurm_plugin.monitor.attribution import Traced
from slurm_plugin.mps.daemon import LOG
from slurm_plugin.mps.quarantine import faults_of
from slurm_plugin.mps.state import State, write_state

ALICE, BOB = 1001, 1002
ME = Process.running(os.getpid())
GONE = Process(pid=2**22 - 1, started_ticks=1)
assert ME is not None


class Reports:
    """Remembers which jobs were warned."""

    def __init__(self) -> None:
        self.reported: list[int | None] = []

    def notify(self, violation: Violation) -> None:
        self.reported.append(violation.job_id)


class Stops:
    """Remembers which it was to stop, and what was written down by then."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.reported: list[tuple[int | None, bool]] = []

    def stop(self, violation: Violation) -> None:
        self.reported.append((violation.job_id, any(one.stopped for one in read_incidents(self.run))))


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
        self.stops, self.shows = Stops(self.run), Reports()
        self.guard = self.again()

    def again(self) -> Guard:
        return Guard(self.config, clock=self.clock, stop=self.stops.stop, notify=self.shows.notify)

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
            name="H100",
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


def test_a_job_that_shares_several_gpus_has_no_limit_that_it_could_pass_on_purpose(bench: Bench):
    """Such jobs run without MPS. On simulated GPUs they were ended for good as if it had used their memory."""
    for _ in range(3):
        bench.look(30, gpus=2)
    assert bench.stops.reported == []
    bench.look(35, bob_gib=3, gpus=2)  # now the other cannot have what it booked
    bench.look(38, bob_gib=2, gpus=2)
    assert bench.stops.reported == [(1, True)]


def test_an_overrunning_job_is_stopped_at_the_second_sample(bench: Bench):
    bench.look(30)
    assert bench.stops.reported == []
    bench.look(30)
    assert bench.stops.reported == [(1, True)]  # its Epilog finds written down why
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
    assert (bench.stops.reported, bench.events(), read_incidents(bench.run)) == ([], [], ())


@pytest.mark.parametrize("more", [{"mode": "observe"}, {"features": Features(guard=False)}])
def test_switched_off_it_only_says(tmp_path: Path, more: dict[str, object]):
    bench = Bench(tmp_path, **more)
    bench.look(30)
    bench.look(30)
    assert bench.stops.reported == []
    assert [event["response"] for event in bench.events()] == ["warn"]
    assert bench.shows.reported == ([] if more.get("mode") == "observe" else [1])


def test_switched_off_meanwhile_it_stops_no_job_to_the_end(tmp_path: Path):
    """An admin sets `guard = false` while an overrunning job is being stopped, and restarts rad-monitor."""
    bench = Bench(tmp_path)
    for _ in range(2):
        bench.look(30)
    assert len(bench.stops.reported) == 1
    bench.config = replace(bench.config, features=Features(guard=False))
    bench.guard = bench.again()
    bench.look(30)
    assert len(bench.stops.reported) == 1


@pytest.mark.parametrize(
    ("settings", "stopped"),
    [({}, True), ({"sharing": "streams"}, False), ({"memory_cap": False}, False)],
)
def test_a_job_without_a_cap_is_not_stopped_for_what_no_other_job_lacks(
    tmp_path: Path, settings: dict[str, object], stopped: bool
):
    """Past a cap one goes on purpose; without one a job may honestly need more than any job thought."""
    plain = PartitionConfig(collocate=True, shards_per_gpu=40)
    bench = Bench(tmp_path, partition=replace(plain, **settings))  # type: ignore[arg-type]
    for _ in range(2):
        bench.look(30)
    assert bool(bench.stops.reported) == stopped
    assert [event["response"] for event in bench.events()] == ["requeue" if stopped else "warn"]
    assert [str(event["detail"]).endswith(", stopped") for event in bench.events()] == [stopped]


@pytest.mark.parametrize(
    ("cap", "daemon", "stopped"), [(4 * GIB, ME, True), (None, ME, False), (4 * GIB, GONE, False)]
)
def test_only_a_job_that_rads_server_limits_goes_past_its_limit_on_purpose(
    tmp_path: Path, cap: int | None, daemon: Process, stopped: bool
):
    """A daemon that has ended caps no job."""
    bench = Bench(tmp_path, source="nvml")
    write_state(bench.run / "mps" / "GPU-a" / str(ALICE), State(daemon=daemon, server=ME, jobs={1: cap}))
    for _ in range(2):
        bench.look(30)
    assert bool(bench.stops.reported) == stopped


@pytest.mark.parametrize(("daemon", "stopped"), [(ME, True), (GONE, False)])
def test_whose_daemon_has_ended_goes_past_mps_in_all_honesty(tmp_path: Path, daemon: Process, stopped: bool):
    """What such a job starts from then on runs without MPS, and nothing shows it."""
    plain = PartitionConfig(collocate=True, shards_per_gpu=40, on_outside_mps="end")
    bench = Bench(tmp_path, source="nvml", partition=plain)
    write_state(bench.run / "mps" / "GPU-a" / str(ALICE), State(daemon=daemon, server=ME, jobs={1: 4 * GIB}))
    for _ in range(2):
        bench.look(2, mps=False)
    assert bool(bench.stops.reported) == stopped


def test_what_is_read_of_mps_while_gpus_are_simulated_is_nobodys_fault(tmp_path: Path):
    bench = Bench(tmp_path, users=(ALICE, ALICE))
    bench.look(1)
    tell_fault(bench, 11, 21, key=str(ALICE), users={1: ALICE, 2: ALICE})
    bench.look(1)
    assert read_incidents(bench.run) == ()


def test_a_restarted_monitor_goes_on(bench: Bench):
    bench.look(30)
    bench.guard = bench.again()
    bench.look(30)
    bench.look(30)
    assert bench.stops.reported == [(1, True)]
    assert len(read_incidents(bench.run)) == 1


def test_an_honest_surprise_is_not_stopped_without_a_word_of_it(bench: Bench):
    """Its Epilog would take it for cancelled, and it would be lost; the neighbour that it hurts runs again."""
    bench.run.mkdir()
    (bench.run / "monitor").write_text("no folder")
    for _ in range(8):
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            bench.look(37, cap_gib=40)
        bench.clock.sleep(1.0)
    assert bench.stops.reported == []
    (bench.run / "monitor").unlink()
    for _ in range(6):
        bench.look(37, cap_gib=40)
    assert bench.stops.reported[0] == (1, True)


def test_a_job_being_stopped_when_the_monitor_ended_is_stopped_to_the_end(bench: Bench):
    """Its training was ended, and its script may go on with the next line."""
    for _ in range(2):
        bench.look(30)
    bench.guard = bench.again()
    bench.look(1)
    assert bench.stops.reported == [(1, True), (1, True)]
    bench.look(1)
    assert len(bench.stops.reported) == 2
    bench.guard = bench.again()
    bench.look(1, restart=1)
    assert len(bench.stops.reported) == 2, "its rerun is another run"


def test_what_cannot_be_written_down_is_stopped_all_the_same(bench: Bench):
    bench.look(4)
    bench.run.mkdir()
    (bench.run / "monitor").write_text("no folder")
    with pytest.raises(OSError, match=r"File exists|Not a directory"):
        bench.look(30)
    with pytest.raises(OSError, match=r"File exists|Not a directory"):
        bench.look(30)
    assert [job for job, _ in bench.stops.reported] == [1]


def test_a_stopped_job_counts_as_leaving_for_a_quarter_of_a_minute_and_a_process_of_no_job_never():
    leaving = Leaving(())
    violation = Violation(
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
    leaving.notified(violation, 100.0)
    leaving.notified(replace(violation, job_id=None), 100.0)
    assert set(leaving.runs(100.0)) == set(leaving.runs(100.0 + LEAVING_S)) == {(1, 2)}
    assert set(leaving.runs(100.0 + LEAVING_S + 0.1)) == set()


def tell_fault(
    bench: Bench,
    *ended: int,
    key: str,
    users: Mapping[int, int],
    named: int | None = None,
) -> None:
    """Count jobs on a server, and let its log say that a fault ended these processes, and name one of them."""
    place = bench.run / "mps" / "GPU-a" / key
    write_state(place, State(daemon=ME, server=ME, jobs=dict.fromkeys(users, 4 * GIB), users=dict(users)))
    lines = [
        f"Client {{PID: {named or ended[0]}, Context: 1}} encountered a fatal GPU error.",
        "The following client process have a sticky error set:",
        *map(str, ended),
    ]
    text = "".join(f"[2026-11-22 04:42:39.767 Server  1122] {line}\n" for line in lines)
    (place / LOG).write_text(text)


def faulted(folder: Path, *users: int, partition: PartitionConfig | None = None, **more: object) -> Bench:
    """Return a node with real MPS servers whose monitor has taken a sample."""
    bench = Bench(folder, source="nvml", users=users or (ALICE, BOB), partition=partition, **more)  # type: ignore[arg-type]
    bench.look(1)
    return bench


def rows(bench: Bench, user_id: int) -> list[tuple[int, bool]]:
    return [(one.job_id, one.certain) for one in faults_of(bench.run, user_id)]


ONE_SERVER = PartitionConfig(collocate=True, shards_per_gpu=40, mps_server="gpu")
KEYS = ("all", "aa51146d38077", str(ALICE), "j1")


@pytest.mark.parametrize("key", KEYS)
def test_a_job_alone_on_its_server_caused_the_fault_that_ended_it(tmp_path: Path, key: str):
    """Also a process that no sample showed, whatever pid the log names."""
    for number, pids in enumerate(((11,), (71,), (11, 71))):
        bench = faulted(tmp_path / str(number))
        tell_fault(bench, *pids, key=key, users={1: ALICE})
        bench.look(1)
        (one,) = read_incidents(bench.run)
        assert (one.kind, one.gpu, one.culprit, one.culprit_user_id, one.victims) == (
            "fault",
            "GPU-a",
            1,
            ALICE,
            (),
        )
        assert one.detail == "an invalid memory access of job 1 ended its MPS server on GPU-a"


@given(
    key=st.sampled_from(KEYS),
    jobs=st.sets(st.integers(1, 5), min_size=2),
    owners=st.lists(st.sampled_from((ALICE, BOB)), min_size=5, max_size=5),
    ended=st.lists(st.integers(10, 17), min_size=1, unique=True),
    sampled=st.dictionaries(st.integers(10, 17), st.integers(1, 7)),
    fresh=st.booleans(),
)
def test_with_several_jobs_on_a_server_none_is_known_to_have_caused_its_fault(
    key: str, jobs: set[int], owners: list[int], ended: list[int], sampled: dict[int, int], fresh: bool
):
    """Measured on H100s: whatever the log says, it may name a client that did nothing."""
    users = {job: owners[job - 1] if user_of(key) is None else ALICE for job in jobs}
    one = fault_incident(
        tuple(ended),
        gpu="GPU-a",
        user_id=user_of(key),
        jobs=users,
        seen={pid: SampledProcess(0.0, job, users.get(job, BOB)) for pid, job in sampled.items()},
        fresh=fresh,
        now_s=0.0,
    )
    assert one is not None and (one.kind, one.culprit, one.culprit_user_id) == ("server", None, None)
    assert jobs == set(one.victims)
    assert one.detail == f"an invalid memory access ended all {len(jobs)} jobs on an MPS server of GPU-a"


@pytest.mark.parametrize("epilogs_first", [False, True])
@pytest.mark.parametrize("named", [11, 21, 71])
def test_a_fault_on_a_server_of_several_users_ends_them_all_and_blames_none(
    tmp_path: Path, named: int, epilogs_first: bool
):
    """Its Epilogs may release the jobs before the log is read."""
    bench = faulted(tmp_path, partition=ONE_SERVER)
    users = {1: ALICE, 2: BOB}
    state = State(daemon=ME, server=ME, jobs=dict.fromkeys(users, 4 * GIB), users=users)
    write_state(bench.run / "mps" / "GPU-a" / "all", state)
    bench.look(1)
    tell_fault(bench, 21, 11, named=named, key="all", users={} if epilogs_first else users)
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.kind, one.culprit, one.victims) == ("server", None, (1, 2))
    assert (rows(bench, ALICE), rows(bench, BOB)) == ([(1, False)], [(2, False)])


def test_a_job_that_left_its_server_before_the_fault_is_no_victim(tmp_path: Path):
    bench = faulted(tmp_path)
    state = State(daemon=ME, server=ME, jobs={1: 4 * GIB, 2: 4 * GIB}, users={1: ALICE, 2: BOB})
    write_state(bench.run / "mps" / "GPU-a" / "all", state)
    bench.look(1)
    write_state(bench.run / "mps" / "GPU-a" / "all", replace(state, jobs={1: 4 * GIB}, users={1: ALICE}))
    bench.look(1)
    tell_fault(bench, 11, key="all", users={1: ALICE})
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.kind, one.culprit) == ("fault", 1)


def test_a_fault_from_before_the_monitor_blames_and_keeps_apart_no_job(tmp_path: Path):
    """The log of a server may go back for days, to jobs that are over."""
    bench = Bench(tmp_path, source="nvml", partition=ONE_SERVER)
    tell_fault(bench, 71, key="all", users={1: ALICE})
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.kind, one.culprit, one.victims) == ("server", None, (1,))
    bench.look(1)
    assert len(read_incidents(bench.run)) == 1 and rows(bench, ALICE) == []


@pytest.mark.parametrize(("key", "pids"), [(str(ALICE), (11, 21)), ("all", (21,))])
def test_a_log_that_names_processes_of_a_job_that_was_never_there_blames_no_job(
    tmp_path: Path, key: str, pids: tuple[int, ...]
):
    """A user with control of the words in the log of a private server is not taken for a victim of another user."""
    bench = faulted(tmp_path)
    tell_fault(bench, *pids, key=key, users={1: ALICE})
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert (one.kind, one.culprit, one.victims) == ("server", None, (1,))


def test_a_fault_with_no_job_on_the_server_is_no_incident(tmp_path: Path):
    bench = faulted(tmp_path)
    tell_fault(bench, 71, key="all", users={})
    bench.look(1)
    assert read_incidents(bench.run) == ()


@pytest.mark.parametrize("key", ["all", str(ALICE), "j1"])
def test_a_fault_of_a_job_alone_is_recorded_while_it_runs(tmp_path: Path, key: str):
    """It may go on for hours, be cancelled or end with status 0, and cause the next one before that."""
    bench = faulted(tmp_path, partition=ONE_SERVER)
    tell_fault(bench, 11, key=key, users={1: ALICE})
    bench.look(1, restart=3)
    (one,) = faults_of(bench.run, ALICE)
    assert (one.job_id, one.restart, one.certain) == (1, 3, True)
    assert faults_of(bench.run, BOB) == ()


def test_a_fault_that_cannot_be_recorded_is_once_it_can(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    bench = faulted(tmp_path, partition=ONE_SERVER)
    bench.run.mkdir(exist_ok=True)
    (bench.run / "mps-faults").write_text("no folder")
    tell_fault(bench, 11, key="all", users={1: ALICE})
    for _ in range(3):
        bench.look(1)
    assert [text for text in caplog.messages if "not recorded" in text] == [
        f"job 1: its GPU fault is not recorded yet: {bench.run}/mps-faults/{ALICE}.json: File exists"
    ]
    (bench.run / "mps-faults").unlink()
    bench.look(1)
    assert [one.job_id for one in faults_of(bench.run, ALICE)] == [1]


@pytest.mark.parametrize("key", [str(ALICE), "j1", "j2"])
def test_where_users_share_no_servers_no_job_is_kept_apart(tmp_path: Path, key: str):
    bench = faulted(tmp_path, ALICE, ALICE)
    tell_fault(bench, 11, key=key, users={1: ALICE, 2: ALICE})
    bench.look(1)
    assert len(read_incidents(bench.run)) == 1 and not (bench.run / "mps-faults").exists()


def test_of_one_users_jobs_on_one_server_each_may_have_caused_its_fault(tmp_path: Path):
    bench = faulted(tmp_path, ALICE, ALICE, partition=ONE_SERVER)
    tell_fault(bench, 11, 21, key=str(ALICE), users={1: ALICE, 2: ALICE})
    bench.look(1)
    assert rows(bench, ALICE) == [(1, False), (2, False)]


def test_while_rad_only_observes_no_job_is_kept_apart(tmp_path: Path):
    bench = faulted(tmp_path, partition=ONE_SERVER, mode="observe")
    tell_fault(bench, 11, key="all", users={1: ALICE})
    bench.look(1)
    assert rows(bench, ALICE) == []


def test_a_fault_that_cannot_be_recorded_costs_no_incident(tmp_path: Path):
    bench = faulted(tmp_path)
    bench.run.mkdir(exist_ok=True)
    (bench.run / "mps-faults").touch()
    tell_fault(bench, 21, 11, key="all", users={1: ALICE, 2: BOB})
    bench.look(1)
    (one,) = read_incidents(bench.run)
    assert one.victims == (1, 2)


def test_a_job_that_drops_its_own_limit_up_to_a_neighbours_is_ended(tmp_path: Path):
    """Their server allows each client the largest limit among its jobs; the guard holds each job to its own."""
    bench = Bench(tmp_path, source="nvml", users=(ALICE, BOB))
    state = State(daemon=ME, server=ME, jobs={1: 4 * GIB, 2: 16 * GIB}, users={1: ALICE, 2: BOB})
    write_state(bench.run / "mps" / "GPU-a" / "all", state)
    for _ in range(2):
        bench.look(15, mps=True)
    assert bench.stops.reported == [(1, True)]
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
    assert read_incidents(bench.run) == ()  # it was stopped: no job was on it
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


def test_a_job_beyond_its_limit_is_stopped_for_a_job_that_was_requeued(bench: Bench):
    """The Prolog noted what that job lacks; the ledger does not know of it."""
    for _ in range(3):
        bench.look(30, gpus=2)
    lack = Lack(since_s=bench.clock.now_s(), need_bytes=20 * GIB, gpus=("GPU-a",))
    bench.run.mkdir(exist_ok=True)
    begin_waiting(bench.run, RequeuedJob(job_id=3, earliest_s=bench.clock.now_s(), restart=1, lack=lack))
    for _ in range(2):
        bench.look(30, gpus=2)
    assert bench.stops.reported == [(1, True)]
