"""One MPS server for several users: which may connect, and when a job gets a server of its own."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mps_setup import GPU, Setup, admitted, as_user, made, pytestmark, stop_all  # noqa: F401 - the mark of this module

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.errors import MpsError
from slurm_plugin.core.units import GIB
from slurm_plugin.mps.access import admit
from slurm_plugin.mps.quarantine import FIRST_S, Caused, add_fault
from slurm_plugin.mps.servers import MOST_CLIENTS, SPARE_CLIENTS
from slurm_plugin.mps.simulated import SimulatedMps
from slurm_plugin.mps.state import State, read_state

ALICE, BOB, CAROL = 4711, 4712, 4713


@pytest.fixture
def setup() -> Iterator[Setup]:
    yield from made()


def reaches(setup: Setup, user_id: int, key: str = "all") -> bool:
    return as_user(user_id, "test", "-S", str(setup.place(key=key) / "pipe" / "control")) == 0


def test_users_share_a_server_and_only_those_with_a_job_there_reach_it(setup: Setup) -> None:
    one = setup.acquire(1, user_id=ALICE, key="all")
    pids = setup.pids(setup.place(key="all"))
    two = setup.acquire(2, user_id=BOB, key="all")
    assert (
        one["CUDA_MPS_PIPE_DIRECTORY"] == two["CUDA_MPS_PIPE_DIRECTORY"] == f"{setup.place(key='all')}/pipe"
    )
    assert setup.pids(setup.place(key="all")) == pids
    assert [reaches(setup, user) for user in (ALICE, BOB, CAROL)] == [True, True, False]
    setup.acquire(3, user_id=ALICE, key="all")
    setup.mps.release(1)
    assert [reaches(setup, user) for user in (ALICE, BOB)] == [True, True], "Alice has another job"
    setup.mps.release(3)
    assert [reaches(setup, user) for user in (ALICE, BOB)] == [False, True]
    assert admitted(setup.place(key="all") / "pipe") == {BOB}
    for user in (ALICE, BOB):
        control = str(setup.place(key="all") / "pipe" / "control")
        assert as_user(user, "rm", control) != 0
        assert as_user(user, "sh", "-c", 'echo x >> "$0"', f"{setup.place(key='all')}/pipe/new") != 0
        assert as_user(user, "ls", f"{setup.place(key='all')}/log") != 0
    stop_all(setup.mps)
    assert not setup.place(key="all").exists()


KEEPS = """
import os, socket, sys
kept = f"/proc/self/fd/{os.open(sys.argv[1], os.O_PATH)}"
for _ in range(2):
    with socket.socket(socket.AF_UNIX) as connection:
        print(connection.connect_ex(kept), flush=True)
    sys.stdin.readline()
"""
"""A program that opens the daemon's socket once and connects by what it opened, now and after its job's end."""


def test_a_socket_that_was_opened_in_a_job_is_closed_to_its_user_afterwards(setup: Setup) -> None:
    setup.acquire(1, user_id=ALICE, key="all")
    setup.acquire(2, user_id=BOB, key="all")
    argv = [sys.executable, "-c", KEEPS, str(setup.place(key="all") / "pipe" / "control")]
    with subprocess.Popen(
        argv, user=ALICE, group=ALICE, extra_groups=[], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as kept:
        assert kept.stdin is not None and kept.stdout is not None
        assert int(kept.stdout.readline()) == 0
        setup.mps.release(1)
        kept.stdin.write(b"\n")
        kept.stdin.flush()
        assert int(kept.stdout.readline()) == errno.EACCES
        kept.stdin.write(b"\n")
    assert reaches(setup, BOB)


def test_a_socket_of_root_s_alone_stays_root_s(tmp_path: Path) -> None:
    privileged, for_all = tmp_path / "control_privileged", tmp_path / "log"
    os.mkfifo(privileged, 0o600)
    os.mkfifo(for_all)
    for_all.chmod(0o666)
    for users in ((ALICE, BOB), (BOB,)):
        admit(tmp_path, users)
        assert admitted(for_all) == set(users) and admitted(privileged) == set()
    assert stat.S_IMODE(for_all.stat().st_mode) & stat.S_IRWXO == 0


def test_a_hook_that_was_killed_before_it_removed_the_access_is_repeated(setup: Setup) -> None:
    setup.acquire(1, user_id=ALICE, key="all")
    setup.acquire(2, user_id=BOB, key="all")
    pipe = setup.place(key="all") / "pipe"
    admit(pipe, (BOB,))  # and then killed: the job is still in the state
    setup.mps.release(1)
    assert admitted(pipe) == {BOB} and setup.jobs() == {GPU: {2}}


def test_each_job_keeps_its_own_limit_below_the_largest_one(setup: Setup) -> None:
    assert (
        setup.acquire(1, user_id=ALICE, cap=2 * GIB, key="all")["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]
        == "0=2048M"
    )
    assert (
        setup.acquire(2, user_id=BOB, cap=8 * GIB, key="all")["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"
    )
    assert setup.commands()[-1].endswith(" 0 8192M"), "what Alice has without her own limit"
    assert setup.mps.caps() == {(GPU, 1): 2 * GIB, (GPU, 2): 8 * GIB}, "what the guard holds her to"


@pytest.mark.parametrize("connected", [False, True])
def test_a_job_that_may_find_no_slot_gets_a_server_of_its_own(setup: Setup, connected: bool) -> None:
    """Beyond the last slot CUDA has error 808 for any new client."""
    most = MOST_CLIENTS - SPARE_CLIENTS
    setup.acquire(1, user_id=ALICE, key="all", processes=2 if connected else most - 1)
    if connected:
        pids = "\n".join(str(number) for number in range(1, most))
        (setup.tools / "clients").write_text(pids)
    setup.acquire(2, user_id=BOB, key="all")
    assert set(read_state(setup.place(key="all")).jobs) == {1, 2}
    (setup.tools / "clients").unlink(missing_ok=True)
    if connected:
        (setup.tools / "clients").write_text(f"{pids}\n{most}\n")
    own = setup.acquire(3, user_id=CAROL, key="all")
    assert own["CUDA_MPS_PIPE_DIRECTORY"] == f"{setup.place(key='j3')}/pipe"
    assert reaches(setup, CAROL, "j3") and not reaches(setup, CAROL) and not reaches(setup, BOB, "j3")
    assert setup.jobs() == {GPU: {1, 2, 3}}
    setup.mps.release(3)
    assert not setup.place(key="j3").exists()


@pytest.mark.parametrize("certain", [True, False])
def test_no_other_users_job_joins_one_that_caused_a_fault(setup: Setup, certain: bool) -> None:
    """Its job may run on, and end each rerun of the jobs that it ended."""
    setup.acquire(1, user_id=ALICE, key="all")
    now_s = SystemClock().now_s()
    caused = Caused(job_id=1, restart=0, profile_key="ab", time_s=now_s, certain=certain)
    add_fault(setup.run, ALICE, caused, clock=SystemClock())
    for job, user, server in ((2, BOB, "j2"), (3, ALICE, "all")):
        pipe = setup.acquire(job, user_id=user, key="all")["CUDA_MPS_PIPE_DIRECTORY"]
        assert pipe == f"{setup.place(key=server)}/pipe"
    setup.mps.release(1)
    setup.acquire(4, user_id=BOB, key="all")
    assert set(read_state(setup.place(key="all")).jobs) == {3, 4}, "the job that caused it has left"


def test_a_fault_of_long_ago_keeps_no_job_away(setup: Setup) -> None:
    setup.acquire(1, user_id=ALICE, key="all")
    caused = Caused(job_id=1, restart=0, profile_key=None, time_s=SystemClock().now_s() - FIRST_S - 1)
    add_fault(setup.run, ALICE, caused, clock=SystemClock())
    setup.acquire(2, user_id=BOB, key="all")
    assert set(read_state(setup.place(key="all")).jobs) == {1, 2}


def test_a_job_alone_has_its_server_whatever_it_needs(setup: Setup) -> None:
    setup.acquire(1, user_id=ALICE, key="all", processes=100)
    assert set(read_state(setup.place(key="all")).jobs) == {1}


def test_a_user_who_cannot_be_admitted_is_not_counted_and_costs_the_others_nothing(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.acquire(1, user_id=ALICE, key="all")

    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken, pytest.raises(MpsError, match="No space left"):
        broken.setattr("os.setxattr", refuse)
        setup.acquire(2, user_id=BOB, key="all")
    assert setup.jobs() == {GPU: {1}}
    assert admitted(setup.place(key="all") / "pipe") == {ALICE}
    assert not setup.mps.uncapped()


def test_simulated_servers_keep_the_same_lists(tmp_path: Path) -> None:
    for job, user in ((1, ALICE), (2, BOB)):
        variables = SimulatedMps(tmp_path).acquire(
            gpu=GPU, user_id=user, job_id=job, cap_bytes=GIB, gpu_bytes=4 * GIB, key="all"
        )
    pipe = Path(variables["CUDA_MPS_PIPE_DIRECTORY"])
    assert admitted(pipe) == {ALICE, BOB}
    SimulatedMps(tmp_path).release(1)
    assert admitted(pipe) == {BOB}
    SimulatedMps(tmp_path).release(2)
    assert not pipe.parent.exists()
    with pytest.raises(MpsError):
        SimulatedMps(tmp_path, starts=False).acquire(
            gpu=GPU, user_id=ALICE, job_id=1, cap_bytes=GIB, gpu_bytes=4 * GIB, key="all"
        )
    assert State() == read_state(pipe.parent)
