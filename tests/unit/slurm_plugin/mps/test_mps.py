"""MPS daemons against a stand-in for NVIDIA's control program: real processes, real sockets, no GPU."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mps_setup import GPU, OTHER_GPU, Setup, as_user, eventually, made, pytestmark, runs  # noqa: F401

from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.units import GIB
from slurm_plugin.mps import Mps
from slurm_plugin.mps.daemon import ANSWER_S
from slurm_plugin.mps.servers import START_BUDGET_S
from slurm_plugin.mps.state import read_state, write_state
from tests.timing import within


@pytest.fixture
def setup() -> Iterator[Setup]:
    yield from made()


def test_the_first_job_starts_a_daemon_of_roots_for_its_user_alone(setup: Setup):
    variables = setup.acquire(1, user_id=4711)
    place = setup.place(user_id=4711)
    assert variables == {
        "CUDA_MPS_PIPE_DIRECTORY": f"{place}/pipe",
        "CUDA_MPS_LOG_DIRECTORY": f"{place}/log",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
    }
    assert all(line.startswith(f"{GPU} 0 ") for line in setup.commands())
    daemon, server = setup.pids(place)
    assert {one.pid for one in setup.again().processes()} == {daemon, server}, (
        "the guard takes them for no job's"
    )
    assert [Path(f"/proc/{pid}").stat().st_uid for pid in (daemon, server)] == [0, 0]
    assert "-multiuser-server" in Path(f"/proc/{daemon}/cmdline").read_bytes().decode()
    control = str(place / "pipe" / "control")
    assert as_user(4711, "test", "-S", control) == 0
    assert as_user(4712, "test", "-S", control) != 0
    assert [str(path) for path in setup.run.rglob("*") if path.stat().st_uid] == []
    for path in (
        "pipe/open",
        "pipe/new",
        "log/new",
        "daemon.log",
        "state.json",
        "new",
        "../new",
        "../1000.lock",
    ):
        assert as_user(4711, "sh", "-c", 'echo x >> "$0"', str(place / path)) != 0, path
    for argv in (["rm", control], ["mv", f"{place}/pipe", f"{place}/p"], ["chmod", "777", f"{place}/pipe"]):
        assert as_user(4711, *argv) != 0, argv


def test_no_user_can_hold_a_servers_lock(setup: Setup):
    """Every job on it, whoever's, started without MPS and limit, and no Epilog could release it."""
    lock = setup.place(user_id=4711).with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    lock.touch(mode=0o644)  # an older release's
    setup.acquire(1, user_id=4711)
    for user_id in (4711, 4712):
        assert as_user(user_id, "flock", "--nonblock", str(lock), "true") != 0


def test_without_access_control_lists_the_job_runs_without_mps(setup: Setup, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("os.setxattr", refuse)
    with pytest.raises(MpsError, match="Operation not supported"):
        setup.acquire(1, user_id=4711)
    assert not setup.place(user_id=4711).exists()


def test_limits_are_set_before_the_job_starts(setup: Setup):
    setup.acquire(1, cap=4 * GIB)
    _, server = setup.pids(setup.place())
    reported = [line.split(" ", 2)[2] for line in setup.commands()]
    assert reported.index("set_default_device_pinned_mem_limit 0 4096M") < reported.index(
        "start_server -uid 0"
    )
    assert reported[-1] == f"set_device_pinned_mem_limit {server} 0 4096M"


def test_the_limit_follows_the_largest_cap(setup: Setup):
    setup.acquire(1, cap=4 * GIB)
    setup.acquire(2, cap=8 * GIB)
    assert setup.commands()[-1].endswith(" 0 8192M")
    setup.acquire(3, cap=2 * GIB)
    assert setup.commands()[-1].endswith(" 0 8192M")
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in setup.acquire(4, cap=None)
    assert setup.commands()[-1].endswith(f" 0 {140 * 1024}M")


def test_jobs_of_one_user_share_a_daemon_until_the_last_leaves(setup: Setup):
    setup.acquire(1)
    pids = setup.pids(setup.place())
    setup.acquire(2)
    setup.acquire(2)
    assert setup.pids(setup.place()) == pids
    setup.mps.release(1)
    assert setup.jobs() == {GPU: {2}}
    assert runs(pids[0])
    setup.mps.release(2)
    setup.mps.release(2)
    assert not setup.place().exists()
    eventually(lambda: not any(runs(pid) for pid in pids))


def test_users_and_gpus_have_daemons_of_their_own(setup: Setup):
    setup.acquire(1)
    setup.acquire(2, user_id=4711)
    setup.acquire(3, gpu=OTHER_GPU)
    places = [setup.place(), setup.place(user_id=4711), setup.place(gpu=OTHER_GPU)]
    assert len({setup.pids(place)[0] for place in places}) == 3
    setup.mps.release(1)
    assert setup.jobs() == {GPU: {2}, OTHER_GPU: {3}}
    assert runs(setup.pids(places[1])[0])


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_daemon_or_server_is_replaced_by_the_next_hook(setup: Setup, victim: int):
    setup.acquire(1)
    pids = setup.pids(setup.place())
    os.kill(pids[victim], signal.SIGKILL)
    eventually(lambda: not runs(pids[victim]))
    setup.acquire(2)
    now = setup.pids(setup.place())
    assert now[victim] != pids[victim]
    assert all(runs(pid) for pid in now)
    assert setup.jobs() == {GPU: {1, 2}}
    assert setup.commands()[-1] == f"{GPU} 0 set_device_pinned_mem_limit {now[1]} 0 4096M"


@pytest.mark.parametrize("victim", [0, 1])
def test_without_its_daemon_no_cap_holds_a_job_until_the_next_hook(setup: Setup, victim: int):
    """Of a server alone the daemon starts the next one, under the limit that it was given."""
    setup.acquire(1)
    setup.acquire(3, gpu=OTHER_GPU)
    assert setup.mps.uncapped() == frozenset()
    pid = setup.pids(setup.place())[victim]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not runs(pid))
    assert setup.mps.uncapped() == ({1} if victim == 0 else frozenset())
    setup.acquire(2)
    assert setup.mps.uncapped() == frozenset()


def test_a_stale_pipe_directory_is_replaced(setup: Setup):
    pipe = setup.place() / "pipe"
    pipe.mkdir(parents=True)
    (pipe / "control").write_text("left over")
    setup.acquire(1)
    assert (pipe / "control").is_socket()


def test_after_a_node_reboot_state_and_pipe_are_stale(setup: Setup):
    setup.acquire(1)
    place = setup.place()
    for pid in setup.pids(place):
        os.kill(pid, signal.SIGKILL)
    setup.mps.release(1)
    assert not place.exists()


def test_a_pid_that_belongs_to_another_program_now_is_left_alone(setup: Setup):
    setup.acquire(1)
    place = setup.place()
    for pid in setup.pids(place):
        os.kill(pid, signal.SIGKILL)
    state = (place / "state.json").read_text()
    (place / "state.json").write_text(
        state.replace(f'"pid": {setup.pids(place)[0]}', f'"pid": {os.getpid()}')
    )
    setup.mps.release(1)
    assert runs(os.getpid())


def test_a_daemon_without_jobs_is_stopped_by_the_next_hook(setup: Setup):
    """A hook was killed between counting the last job out and stopping its daemon."""
    setup.acquire(1)
    daemon, _ = setup.pids(setup.place())
    write_state(setup.place(), dataclasses.replace(read_state(setup.place()), jobs={}))
    setup.mps.release(99)
    assert not runs(daemon) and not setup.place().exists()


def test_a_place_that_cannot_be_written_is_reported_and_keeps_no_other(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
):
    setup.acquire(1)
    setup.acquire(1, gpu=OTHER_GPU)
    remove_from = Mps._remove_from

    def fails(self: Mps, place: Path, job_id: int) -> None:
        if place.parent.name == GPU:
            raise MpsError("no space left on device")
        remove_from(self, place, job_id)

    monkeypatch.setattr(Mps, "_remove_from", fails)
    with pytest.raises(MpsError, match="no space"):
        setup.mps.release(1)
    assert setup.jobs() == {GPU: {1}}
    monkeypatch.undo()
    setup.mps.release(1)


@pytest.mark.parametrize("fault", ["refuse", "no-server"])
def test_without_mps_the_job_is_not_counted_and_nothing_stays(setup: Setup, fault: str):
    setup.budget_s = START_BUDGET_S
    (setup.tools / fault).touch()
    with pytest.raises(MpsError):
        setup.acquire(1)
    assert setup.jobs() == {}
    assert not setup.place().exists()


def test_a_hanging_daemon_is_given_up_in_time(setup: Setup):
    setup.budget_s = START_BUDGET_S
    (setup.tools / "hang").touch()
    start_s = time.monotonic()
    with pytest.raises(MpsError):
        setup.acquire(1)
    assert time.monotonic() - start_s < within(5.0)
    assert not setup.place().exists()


def test_a_daemon_that_hangs_is_replaced_if_no_job_is_on_it(setup: Setup):
    setup.acquire(1)
    setup.answer_s = ANSWER_S
    daemon, _ = setup.pids(setup.place())
    os.kill(daemon, signal.SIGSTOP)
    setup.acquire(1)
    assert setup.pids(setup.place())[0] != daemon
    eventually(lambda: not runs(daemon))


def test_a_daemon_that_hangs_is_left_to_the_jobs_on_it(setup: Setup):
    setup.acquire(1)
    setup.answer_s = ANSWER_S
    pids = setup.pids(setup.place())
    os.kill(pids[0], signal.SIGSTOP)
    with pytest.raises(MpsError, match="would end the jobs on it"):
        setup.acquire(2)
    assert setup.jobs() == {GPU: {1}}
    assert setup.pids(setup.place()) == pids
    assert all(runs(pid) for pid in pids)
    setup.mps.release(1)
    eventually(lambda: not any(runs(pid) for pid in pids))


def test_no_control_program_is_one_line(setup: Setup):
    setup.control.unlink()
    with pytest.raises(MpsError, match="did not start"):
        setup.acquire(1)


def test_a_run_folder_too_deep_for_a_socket_is_said(setup: Setup):
    deep = Mps(setup.run / ("d" * 60), control=str(setup.control))
    with pytest.raises(MpsError, match=r"set paths\.run to a shorter folder"):
        deep.acquire(gpu=GPU, user_id=0, job_id=1, cap_bytes=None, gpu_bytes=GIB)


def test_many_hooks_at_once(setup: Setup):
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(setup.acquire, range(1, 4)))
    assert setup.jobs() == {GPU: set(range(1, 4))}
    assert sum(line.endswith("start_server -uid 0") for line in setup.commands()) == 1
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(setup.again().release, range(1, 4)))
    assert not setup.place().exists()
