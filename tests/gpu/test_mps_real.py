"""MPS on a real GPU: verified, capped, two users, and fixed after every kind of end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu.programs import Client, Results, eventually
from mps_setup import stop_all

from slurm_plugin.core.clock import Deadline, SystemClock
from slurm_plugin.core.process.identity import started_ticks
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from slurm_plugin.mps import Mps
from slurm_plugin.mps.daemon import Daemon
from slurm_plugin.mps.servers import CONTROL
from slurm_plugin.mps.state import read_state

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(os.geteuid() != 0, reason="starts daemons as other users")]

USER, OTHER = 4711, 4712


class Node:
    """MPS of one GPU in a folder of its own."""

    def __init__(self, run: Path, gpu: GpuReading) -> None:
        self.run, self.gpu = run, gpu
        self.clients: list[Client] = []

    def acquire(self, job_id: int, *, user: int = USER, cap: int | None = 4 * GIB) -> dict[str, str]:
        started_s = time.monotonic()
        variables = Mps(self.run).acquire(
            gpu=self.gpu.uuid,
            user_id=user,
            job_id=job_id,
            cap_bytes=cap,
            gpu_bytes=self.gpu.usable_bytes,
        )
        self.took_s = time.monotonic() - started_s
        return {**variables, "CUDA_VISIBLE_DEVICES": self.gpu.uuid}

    def client(
        self, variables: dict[str, str], mib: int = 512, mode: str = "hold", user: int = USER
    ) -> Client:
        client = Client(mib, mode, env=variables, user=user)
        self.clients.append(client)
        return client

    def place(self, user: int = USER) -> Path:
        return self.run / "mps" / self.gpu.uuid / str(user)

    def daemon(self, user: int = USER) -> Daemon:
        place = self.place(user)
        return Daemon(place=place, gpu=self.gpu.uuid, user_id=user, control=CONTROL, clock=SystemClock())

    def listed(self, user: int = USER) -> set[int]:
        """Return the clients that the server knows of."""
        daemon, deadline = self.daemon(user), Deadline(SystemClock(), 5.0)
        (server,) = daemon.servers(deadline)
        return {int(word) for word in daemon.ask(f"get_client_list {server}", deadline).split()}

    def pids(self, user: int = USER) -> tuple[int, int]:
        state = read_state(self.place(user))
        assert state.daemon is not None
        assert state.server is not None
        return state.daemon.pid, state.server.pid

    def gone(self, *pids: int) -> bool:
        return all(started_ticks(pid) is None for pid in pids)


@pytest.fixture
def node(gpu: GpuReading, run_folder: Path) -> Iterator[Node]:
    made = Node(run_folder, gpu)
    yield made
    for client in made.clients:
        client.kill()
    stop_all(Mps(run_folder))


def test_mps_is_verified_counted_and_stopped(node: Node, results: Results):
    variables = node.acquire(1)
    first_s = node.took_s
    node.acquire(2)
    results.add(first_acquire_s=first_s, second_acquire_s=node.took_s)
    client = node.client(variables)
    client.wait_ready()
    assert node.listed() == {client.pid}
    used = {process.pid: process.memory_bytes for process in NvmlTelemetry().read()[0].processes}
    results.add(client_mib=(used[client.pid] or 0) / 2**20, server_mib=(used[node.pids()[1]] or 0) / 2**20)
    pids = node.pids()
    client.kill()
    Mps(node.run).release(1)
    assert not node.gone(*pids)
    started_s = time.monotonic()
    Mps(node.run).release(2)
    results.add(last_release_s=time.monotonic() - started_s)
    eventually("daemon and server gone", lambda: node.gone(*pids), 5.0)
    assert not node.place().exists()


def test_mps_cap_binds_whatever_the_client_says(node: Node, results: Results):
    variables = node.acquire(1, cap=2 * GIB)
    node.client(variables, mib=1024).wait_ready()
    said = {}
    for name, limit in (("own", "0=2048M"), ("lied", "0=100G"), ("none", None)):
        env = {key: value for key, value in variables.items() if key != "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}
        client = node.client(
            env if limit is None else {**env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limit}, mib=3072
        )
        client.process.wait(20)
        said[name] = client.said().strip()
    results.add(said=said)
    assert all("error 2 in cuMemAlloc_v2" in text for text in said.values())


def test_mps_two_users_at_once(node: Node):
    one = node.client(node.acquire(1))
    two = node.client(node.acquire(2, user=OTHER), user=OTHER)
    one.wait_ready()
    two.wait_ready()
    assert node.listed() == {one.pid}
    assert node.listed(OTHER) == {two.pid}
    assert one.beats_on()
    assert two.beats_on()


def test_mps_after_kill_9_of_a_client(node: Node, results: Results):
    variables = node.acquire(1)
    victim, neighbour = node.client(variables), node.client(variables)
    for client in (victim, neighbour):
        client.wait_ready()
    victim.kill()
    assert neighbour.beats_on()
    node.acquire(2)
    later = node.client(variables)
    later.wait_ready()
    results.add(neighbour="goes on", new_client="works", acquire_s=node.took_s)


def test_mps_after_a_fatal_fault_of_one_client(node: Node, results: Results):
    variables = node.acquire(1)
    victim, neighbour = node.client(variables, mode="fault"), node.client(variables)
    for client in (victim, neighbour):
        client.wait_ready()
    victim.fault()
    victim.process.wait(20)
    survives = neighbour.beats_on()
    results.add(
        victim=victim.said().splitlines()[-1],
        neighbour="goes on" if survives else neighbour.said().splitlines()[-1],
    )
    variables = node.acquire(2)
    later = node.client(variables)
    later.wait_ready()
    assert later.beats_on()
    results.add(new_client="works", acquire_s=node.took_s)


@pytest.mark.parametrize("victim", ["server", "daemon", "both"])
def test_mps_after_kill_9_of(victim: str, node: Node, results: Results):
    variables = node.acquire(1)
    neighbour = node.client(variables)
    neighbour.wait_ready()
    daemon, server = node.pids()
    killed = {"server": (server,), "daemon": (daemon,), "both": (daemon, server)}[victim]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    eventually("killed", lambda: node.gone(*killed), 5.0)
    survives = neighbour.beats_on()
    results.add(neighbour="goes on" if survives else neighbour.said().splitlines()[-1])
    variables = node.acquire(2)
    results.add(acquire_s=node.took_s)
    if survives:
        assert neighbour.beats_on()
    later = node.client(variables)
    later.wait_ready()
    assert later.beats_on()
    assert later.pid in node.listed()
    over = node.client(variables, mib=6 * 1024)
    over.process.wait(20)
    assert "error 2 in cuMemAlloc_v2" in over.said()
    now = node.pids()
    for client in node.clients:
        client.kill()
    stop_all(Mps(node.run))
    eventually("all gone", lambda: node.gone(daemon, server, *now), 5.0)


def test_mps_stale_pipe_directory(node: Node):
    pids = (node.acquire(1), node.pids())[1]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    eventually("killed", lambda: node.gone(*pids), 5.0)
    assert (node.place() / "pipe").is_dir()
    client = node.client(node.acquire(2))
    client.wait_ready()
    assert client.pid in node.listed()
