"""A hostile user on a real GPU: what MPS refuses, and what the guard ends in how many seconds, next to which."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from gpu.programs import Client, Results, Training, eventually
from mps_setup import stop_all

from slurm_plugin.core.clock import Deadline, SystemClock
from slurm_plugin.core.config.load import Config, PartitionConfig, Paths
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.store import LedgerStore, boot_id
from slurm_plugin.core.process.run import SYSTEM_PATH, find_program
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.units import GIB, MIB
from slurm_plugin.guard.incident_file import read_incidents
from slurm_plugin.guard.incidents import Incident
from slurm_plugin.guard.stop import stop
from slurm_plugin.guard.watch import Guard
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from slurm_plugin.monitor.monitor import Monitor
from slurm_plugin.mps import Mps
from slurm_plugin.mps.servers import CONTROL
from slurm_plugin.mps.state import read_state

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(os.geteuid() != 0, reason="starts daemons for other users")]

USER, OTHER = 4711, 4712
CAP, WANTED_MIB = 2 * GIB, 3072


class Node:
    """One GPU with MPS, a ledger, and a monitor whose guard is on.

    Attributes:
        key: Key of the MPS server of all jobs; None for each user's own.
    """

    key: str | None = None

    def __init__(self, run: Path, gpu: GpuReading) -> None:
        self.run, self.gpu, self.clock = run, gpu, SystemClock()
        self.config = Config(
            paths=Paths(run=str(run), log=str(run / "log")),
            partitions={"gpu": PartitionConfig(collocate=True, shards_per_gpu=100)},
        )
        self.store = LedgerStore(run, clock=self.clock, boot_id=boot_id())
        self.monitor = Monitor(
            NvmlTelemetry(),
            run,
            clock=self.clock,
            store=self.store,
            guard=Guard(self.config, clock=self.clock, stop=stop, notify=lambda _violation: None),
        )
        self.ledger = Ledger()
        self.clients: list[Client] = []
        self.trainings: list[Training] = []

    def job(self, job_id: int, *, user: int = USER, cap: int = CAP, key: str | None = None) -> dict[str, str]:
        """Reserve, and return a job's environment."""
        variables = Mps(self.run).acquire(
            gpu=self.gpu.uuid,
            user_id=user,
            job_id=job_id,
            cap_bytes=cap,
            gpu_bytes=self.gpu.usable_bytes,
            key=key or self.key,
        )
        allocation = Allocation(
            job_id=job_id,
            user_id=user,
            kind="shared",
            gpus=(self.gpu.uuid,),
            gpu_indices=(0,),
            booked_bytes=cap,
            created_s=self.clock.monotonic_s(),
            partition="gpu",
        )
        self.ledger = self.ledger.reserve(allocation, {self.gpu.uuid: self.gpu.usable_bytes})
        with self.store.locked(Deadline(self.clock, 2.0)):
            self.store.write(self.ledger)
        return {**variables, "CUDA_VISIBLE_DEVICES": self.gpu.uuid, "SLURM_JOB_ID": str(job_id)}

    def client(self, env: Mapping[str, str], mib: int, mode: str = "hold", user: int = USER) -> Client:
        client = Client(mib, mode, env=dict(env), user=user)
        self.clients.append(client)
        return client

    def sample_until(self, what: str, condition: Callable[[], bool], timeout_s: float = 15.0) -> float:
        """Sample once a second, as rad-monitor does, and return after how many seconds the condition held."""
        start_s = time.monotonic()
        next_s = start_s
        while not condition():
            assert time.monotonic() - start_s < timeout_s, what
            if time.monotonic() >= next_s:
                self.monitor.sample()
                next_s += 1.0
            time.sleep(0.01)
        return time.monotonic() - start_s

    def sample_for(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        self.sample_until("samples", lambda: time.monotonic() >= end_s, seconds + 5)

    def incidents(self) -> list[Incident]:
        return list(read_incidents(self.run))

    def place(self, user: int = USER) -> Path:
        return self.run / "mps" / self.gpu.uuid / str(user)


@pytest.fixture
def node(gpu: GpuReading, run_folder: Path) -> Iterator[Node]:
    made = Node(run_folder, gpu)
    yield made
    for client in made.clients:
        client.kill()
    for training in made.trainings:
        training.stop()
    stop_all(Mps(run_folder))


def without(env: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in names}


@pytest.mark.parametrize("limit", ["own", "0=100G", "none"])
def test_caps_hold_against(limit: str, node: Node):
    env = node.job(1)
    if limit == "none":
        env = without(env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
    elif limit != "own":
        env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = limit
    node.client(env, 1024).wait_ready()
    over = node.client(env, WANTED_MIB)
    over.process.wait(20)
    assert "error 2 in cuMemAlloc_v2" in over.said()


def test_the_daemon_takes_no_orders(node: Node, results: Results):
    env = node.job(1)
    neighbour = node.client(env, 512)
    neighbour.wait_ready()
    state = read_state(node.place())
    assert state.server is not None and state.daemon is not None
    said = {}
    for command in (
        "set_default_device_pinned_mem_limit 0 64G",
        f"set_device_pinned_mem_limit {state.server.pid} 0 64G",
        f"terminate_client {state.server.pid} {neighbour.pid}",
        "quit -t 1",
        "quit",
    ):
        done = subprocess.run(
            [find_program(CONTROL)],
            input=f"{command}\n".encode(),
            env={"PATH": ":".join(SYSTEM_PATH), **env},
            user=USER,
            group=USER,
            extra_groups=[],
            capture_output=True,
            timeout=10,
            check=False,
        )
        said[command.split()[0]] = (done.stdout + done.stderr).decode(errors="replace").strip()
    results.add(said=said)
    assert neighbour.beats_on()
    assert state.daemon.runs() and state.server.runs()
    over = node.client(without(env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), WANTED_MIB)
    over.process.wait(20)
    assert "error 2 in cuMemAlloc_v2" in over.said()


def test_users_write_nothing(node: Node, results: Results):
    env = node.job(1)
    node.client(env, 512).wait_ready()
    place = node.place()
    shown = {str(path.relative_to(place)): oct(path.lstat().st_mode) for path in sorted(place.rglob("*"))}
    results.add(files=shown)
    program = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        print(path)
    except OSError:
        pass
"""
    paths = [str(path) for path in place.rglob("*") if not (path.is_socket() or path.is_fifo())]
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-c", program, *paths],
        user=USER,
        group=USER,
        extra_groups=[],
        capture_output=True,
        check=True,
    )
    results.add(writable=done.stdout.decode().splitlines())
    assert done.stdout == b""


@pytest.mark.parametrize("way", ["no pipe directory", "no such pipe directory", "own daemon"])
def test_the_guard_ends_an_overrunning_job(way: str, node: Node, results: Results):
    env, alongside = node.job(1), node.job(2, user=OTHER)
    neighbour = node.client(alongside, 512, user=OTHER)
    neighbour.wait_ready()
    past = without(env, "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
    daemon = None
    if way == "no such pipe directory":
        past["CUDA_MPS_PIPE_DIRECTORY"] = str(node.run / "none")
    elif way == "own daemon":
        own = node.run / "own"
        own.mkdir()
        os.chown(own, USER, USER)
        past["CUDA_MPS_PIPE_DIRECTORY"] = past["CUDA_MPS_LOG_DIRECTORY"] = str(own)
        daemon = subprocess.Popen(
            [find_program(CONTROL), "-f"],
            env={"PATH": ":".join(SYSTEM_PATH), **past},
            user=USER,
            group=USER,
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        eventually("own daemon", (own / "control").is_socket, 10)
    node.sample_for(1.5)
    overrunner = node.client(past, 20 * 1024)
    overrunner.wait_ready()
    before = neighbour.beats()
    took_s = node.sample_until("stopped", lambda: overrunner.process.poll() is not None)
    incident = next(one for one in node.incidents() if one.stopped)
    results.add(way=way, stopped_after_s=took_s, had_mib=20 * 1024, detail=incident.detail)
    assert (incident.kind, incident.culprit, incident.culprit_user_id) == ("memory", 1, USER)
    assert took_s < 4.0
    assert neighbour.beats_on()
    results.add(neighbour_beats_meanwhile=neighbour.beats() - before)
    if daemon is not None:
        eventually("its daemon ended too", lambda: daemon.poll() is not None, 10)


def test_what_a_training_next_to_an_overrunning_job_feels(node: Node, results: Results):
    """A training past MPS takes 20 GiB more than its job booked, after 20 steps."""
    honest = node.job(2, user=0, cap=6 * GIB)
    past = without(
        node.job(1, user=0, cap=3 * GIB), "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
    )
    options = ("--size", "64", "--batch", "64", "--report-every", "5")
    neighbour = Training(node.run, "neighbour", *options, env=honest)
    node.trainings.append(neighbour)
    neighbour.wait_steps(20)
    time.sleep(2.0)
    began_s = time.time()
    overrunner = Training(node.run, "overrunner", *options, "--grab-gib", "20", env=past)
    node.trainings.append(overrunner)
    node.sample_until("stopped", lambda: overrunner.process.poll() is not None, 60)
    ended_s = time.time()
    time.sleep(3.0)
    first_s = overrunner.reports()[0][0]
    results.add(
        overrunner_lived_s=ended_s - first_s,
        images_per_s={
            "before": neighbour.rate(began_s - 2.0, began_s),
            "while the thief trained": neighbour.rate(first_s, ended_s),
            "after": neighbour.rate(ended_s + 0.5, ended_s + 3.0),
        },
        longest_pause_s=neighbour.longest_pause_s(first_s, ended_s + 1.0),
    )
    assert neighbour.process.poll() is None
    assert [one.kind for one in node.incidents() if one.stopped] == ["memory"]


def test_honest_jobs_are_left_alone(node: Node, results: Results):
    """At their caps to the last MiB, with trainings that allocate and free, started and ended over many samples."""
    full = node.client(node.job(1), 1400)
    full.wait_ready()
    env = node.job(3, user=0, cap=6 * GIB)
    node.trainings = [
        Training(node.run, f"t{number}", "--size", "64", "--batch", "64", "--report-every", "20", env=env)
        for number in range(2)
    ]
    for training in node.trainings:
        node.sample_until("training", lambda one=training: len(one.reports()) >= 3, 60)  # type: ignore[misc]
    node.sample_for(5)
    used = {row.pid: row.memory_bytes for row in NvmlTelemetry().read()[0].processes}
    results.add(client_at_its_cap_mib=(used[full.pid] or 0) / MIB, cap_mib=CAP / MIB)
    for training in node.trainings:
        training.process.kill()
    node.sample_for(3)
    assert node.incidents() == []
    assert full.beats_on()


def test_a_fault_ends_the_jobs_of_its_server_alone(node: Node, results: Results):
    culprit = node.client(node.job(1), 512, "fault")
    victim = node.client(node.job(2), 512)
    other = node.client(node.job(3, user=OTHER), 512, user=OTHER)
    for client in (culprit, victim, other):
        client.wait_ready()
    node.sample_for(1.5)
    culprit.fault()
    node.sample_until("recorded", lambda: bool(node.incidents()))
    (one, *_) = node.incidents()
    results.add(kind=one.kind, culprit=one.culprit, victims=one.victims, detail=one.detail)
    assert (one.kind, one.culprit, one.victims) == ("server", None, (1, 2))
    assert other.beats_on()


def test_a_server_that_dies_names_its_clients(node: Node):
    client = node.client(node.job(1), 512)
    client.wait_ready()
    node.sample_for(1.5)
    state = read_state(node.place())
    assert state.server is not None and state.server.kill()
    node.sample_until("recorded", lambda: bool(node.incidents()))
    assert [(one.kind, one.victims) for one in node.incidents()] == [("server", (1,))]


def test_ending_busy_clients_hurts_no_job(node: Node, results: Results):
    """What the guard does to an overrunning job, to six trainings in the middle of their kernels."""
    env = node.job(1, user=0, cap=6 * GIB)
    neighbour = node.client(env, 512, user=0)
    neighbour.wait_ready()
    node.trainings = [
        Training(node.run, f"t{number}", "--size", "64", "--batch", "64", "--report-every", "5", env=env)
        for number in range(6)
    ]
    for training in node.trainings:
        training.wait_steps(3)
    survived = []
    for number, training in enumerate(node.trainings):
        training.process.kill()
        training.process.wait(20)
        time.sleep(0.5)
        survived.append(all(one.process.poll() is None for one in node.trainings[number + 1 :]))
    results.add(others_went_on=survived)
    assert neighbour.beats_on()
    assert all(survived)
