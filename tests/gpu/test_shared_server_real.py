"""One MPS server for the jobs of two users on a real GPU: limits, faults, slots, and which users may connect."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from gpu.programs import Client, Results, eventually
from gpu.test_guard_real import OTHER, USER, Node, without
from mps_setup import admitted, stop_all

from slurm_plugin.core.clock import Deadline, SystemClock
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.units import GIB
from slurm_plugin.mps import Mps
from slurm_plugin.mps.daemon import LOG, Daemon
from slurm_plugin.mps.quarantine import faults_of
from slurm_plugin.mps.servers import CONTROL, MOST_CLIENTS

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(os.geteuid() != 0, reason="starts daemons for other users")]

OTHER_USER = 4713
SMALL, LARGE = 2 * GIB, 6 * GIB
LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


class Shared(Node):
    """One GPU whose jobs all share a server, with a ledger and a monitor whose guard is on."""

    key = "all"

    def listed(self, key: str = "all") -> set[int]:
        """Return the clients of the server of this key."""
        place = self.run / "mps" / self.gpu.uuid / key
        daemon = Daemon(place=place, gpu=self.gpu.uuid, user_id=None, control=CONTROL, clock=SystemClock())
        deadline = Deadline(SystemClock(), 5.0)
        return {
            int(word)
            for server in daemon.servers(deadline)
            for word in daemon.ask(f"get_client_list {server}", deadline).split()
        }

    def log(self) -> list[str]:
        """Return what the daemons logged of clients and faults."""
        paths = (self.run / "mps").glob(f"*/*/{LOG}")
        lines = [line for path in paths for line in path.read_text(errors="replace").splitlines()]
        return [line for line in lines if re.search("NEW CLIENT|fatal|sticky|] [0-9]+$", line)]

    def refused(self, env: Mapping[str, str], user: int) -> bool:
        """Return whether a client of a user does not get to the server of this environment.

        Without a server, CUDA either fails or runs the client outside of MPS.
        """
        client = self.client(env, 256, user=user)
        eventually("it started or failed", lambda: "ready" in client.said() or "error" in client.said(), 30)
        outside = client.pid not in self.listed()
        client.kill()
        return outside


@pytest.fixture
def node(gpu: GpuReading, run_folder: object) -> Iterator[Shared]:
    made = Shared(run_folder, gpu)  # type: ignore[arg-type]
    yield made
    for client in made.clients:
        client.kill()
    stop_all(Mps(made.run))


def failed(client: Client) -> str:
    client.process.wait(30)
    return client.said().strip().splitlines()[-1]


def test_two_users_run_on_one_server_each_within_its_limit(node: Shared, results: Results) -> None:
    small, large = node.job(1, cap=SMALL), node.job(2, user=OTHER, cap=LARGE)
    assert small["CUDA_MPS_PIPE_DIRECTORY"] == large["CUDA_MPS_PIPE_DIRECTORY"]
    one, two = node.client(small, 512), node.client(large, 512, user=OTHER)
    for client in (one, two):
        client.wait_ready()
    assert {one.pid, two.pid} <= node.listed()
    said = {
        "above its own limit": failed(node.client(small, 3 * 1024)),
        "above the largest limit, its own dropped": failed(node.client(without(small, LIMIT), 7 * 1024)),
        "above the largest limit, a larger one said": failed(
            node.client({**small, LIMIT: "0=100G"}, 7 * 1024)
        ),
    }
    results.add(said=said)
    assert all("error 2 in cuMemAlloc_v2" in text for text in said.values())
    assert one.beats_on() and two.beats_on()


def test_the_guard_ends_a_job_that_drops_its_limit_up_to_a_neighbours(node: Shared, results: Results) -> None:
    small, large = node.job(1, cap=SMALL), node.job(2, user=OTHER, cap=LARGE)
    neighbour = node.client(large, 512, user=OTHER)
    neighbour.wait_ready()
    node.sample_for(1.5)
    overrunner = node.client(without(small, LIMIT), 5 * 1024)
    overrunner.wait_ready()
    assert overrunner.pid in node.listed(), "it did not pass MPS"
    took_s = node.sample_until("stopped", lambda: overrunner.process.poll() is not None)
    incident = next(one for one in node.incidents() if one.stopped)
    results.add(stopped_after_s=took_s, had_mib=5 * 1024, detail=incident.detail)
    assert (incident.kind, incident.culprit, incident.culprit_user_id) == ("memory", 1, USER)
    assert took_s < 4.0
    assert neighbour.beats_on()


def test_a_fault_ends_both_users_and_blames_neither(node: Shared, results: Results) -> None:
    culprit = node.client(node.job(1), 512, "fault")
    env = node.job(2, user=OTHER)
    victim = node.client(env, 512, user=OTHER)
    for client in (culprit, victim):
        client.wait_ready()
    node.sample_for(1.5)
    culprit.fault()
    node.sample_until("incident", lambda: bool(node.incidents()))
    (one, *_) = node.incidents()
    results.add(pids={"job 1": culprit.pid, "job 2": victim.pid}, log=node.log())
    results.add(kind=one.kind, culprit=one.culprit, victims=one.victims, detail=one.detail)
    assert (one.kind, one.culprit, one.culprit_user_id, one.victims) == ("server", None, None, (1, 2))
    assert "error" in failed(victim)
    for job, user in ((1, USER), (2, OTHER)):
        assert [(row.job_id, row.certain) for row in faults_of(node.run, user)] == [(job, False)]
    later = node.client(node.job(3, user=OTHER), 512, user=OTHER)
    later.wait_ready()
    assert later.beats_on() and later.pid in node.listed("j3"), "on a server of its own"


def test_a_process_that_no_sample_showed_blames_no_job_either(node: Shared, results: Results) -> None:
    """The log names one of the clients, often a wrong one, and user 0 for each."""
    env, other = node.job(1), node.job(2, user=OTHER)
    stays, victim = node.client(env, 512), node.client(other, 512, user=OTHER)
    for client in (stays, victim):
        client.wait_ready()
    node.sample_for(1.5)
    culprit = node.client(env, 256, "fault")
    culprit.wait_ready()
    culprit.fault()
    culprit.process.wait(30)  # before the next sample
    node.sample_until("incident", lambda: bool(node.incidents()))
    (one, *_) = node.incidents()
    results.add(pids={"job 1": [stays.pid, culprit.pid], "job 2": [victim.pid]}, log=node.log())
    assert (one.kind, one.culprit, one.victims) == ("server", None, (1, 2))


def test_a_job_that_faults_alone_is_known(node: Shared, results: Results) -> None:
    neighbour = node.client(node.job(2, user=OTHER), 512, user=OTHER)
    culprit = node.client(node.job(1, key="j1"), 512, "fault")
    for client in (culprit, neighbour):
        client.wait_ready()
    assert culprit.pid in node.listed("j1")
    node.sample_for(1.5)
    culprit.fault()
    node.sample_until("incident", lambda: bool(node.incidents()))
    (one, *_) = node.incidents()
    results.add(kind=one.kind, culprit=one.culprit, victims=one.victims, detail=one.detail)
    assert (one.kind, one.culprit, one.culprit_user_id, one.victims) == ("fault", 1, USER, ())
    assert neighbour.beats_on()


def test_only_users_with_a_job_there_connect(node: Shared, results: Results) -> None:
    env = node.job(1)
    other = node.job(2, user=OTHER)
    assert node.refused(env, OTHER_USER)
    assert not node.refused(other, OTHER)
    pipe = Path(other["CUDA_MPS_PIPE_DIRECTORY"])
    modes = {path.name: oct(path.lstat().st_mode) for path in pipe.iterdir()}
    results.add(modes=modes, admitted={path.name: sorted(admitted(path)) for path in pipe.iterdir()})
    Mps(node.run).release(2)
    assert node.refused(other, OTHER), "his last job there is over"
    assert admitted(pipe / "control") == {USER}, "also where a process had opened it before"
    one = node.client(env, 256)
    one.wait_ready()
    assert one.beats_on()


def test_a_full_server_costs_no_job_his_start(node: Shared, results: Results) -> None:
    """Beyond the last slot CUDA gives error 808."""
    env = node.job(1, cap=40 * GIB)
    crowd = [node.client(env, 16) for _ in range(MOST_CLIENTS - 5)]
    for client in crowd:
        client.wait_ready(60)
    alongside = node.job(2, user=OTHER)
    late = node.client(alongside, 256, user=OTHER)
    late.wait_ready()
    assert late.pid in node.listed()
    alone = node.job(3, user=OTHER)
    results.add(clients=len(node.listed()), pipe_of_the_last=alone["CUDA_MPS_PIPE_DIRECTORY"])
    assert alone["CUDA_MPS_PIPE_DIRECTORY"].endswith("/j3/pipe")
    last = node.client(alone, 256, user=OTHER)
    last.wait_ready()
    assert last.pid in node.listed("j3") and last.beats_on()
