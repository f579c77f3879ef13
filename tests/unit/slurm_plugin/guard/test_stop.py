"""A job ends with all its processes, and no other job's."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator

import pytest
from fakes import FakeClock

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import Paths
from slurm_plugin.core.process.identity import Process
from slurm_plugin.guard.notify import notify
from slurm_plugin.guard.stop import ROUNDS, end_job, stop
from slurm_plugin.guard.violation import Violation
from slurm_plugin.slurm.node.processes import processes_of
from tests.timing import within

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes as other users")

USER, OTHER = 4711, 4712
SCRIPT = "trap '' TERM; while true; do sleep 100; done"


def job(job_id: int, user: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", f"echo; {SCRIPT}"],
        env={"SLURM_JOB_ID": str(job_id), "PATH": "/bin:/usr/bin"},
        user=user,
        group=user,
        extra_groups=[],
        stdout=subprocess.PIPE,
    )


@pytest.fixture
def jobs() -> Iterator[list[subprocess.Popen[bytes]]]:
    found = [job(987001, USER), job(987002, USER), job(987001, OTHER)]
    for one in found:
        assert one.stdout is not None and one.stdout.readline() == b"\n"
    yield found
    for one in found:
        one.kill()
        one.wait()


def test_a_job_that_starts_what_ends_is_ended_whole(jobs: list[subprocess.Popen[bytes]]) -> None:
    def processes(job_id: int, user_id: int) -> tuple[Process, ...]:
        return processes_of(job_id, user_id)

    assert end_job(987001, USER, SystemClock(), processes=processes)
    assert jobs[0].wait(within(5)) == -9
    assert [one.poll() for one in jobs[1:]] == [None, None]


@pytest.mark.parametrize(
    ("job_id", "user_id", "wider"),
    [(987001, USER, True), (None, USER, False), (987001, None, False), (987001, 0, False)],
    ids=["a job", "no job", "of an unknown user", "root's"],
)
def test_a_violations_processes_go_at_once_and_the_rest_of_its_job_soon(
    jobs: list[subprocess.Popen[bytes]], job_id: int | None, user_id: int | None, wider: bool
) -> None:
    seen = job(987001, USER)
    with seen:
        assert seen.stdout is not None and seen.stdout.readline() == b"\n"
        process = Process.running(seen.pid)
        assert process is not None
        violation = Violation(
            kind="memory",
            gpu="GPU-a",
            job_id=job_id,
            user_id=user_id,
            used_bytes=2,
            limit_bytes=1,
            free_bytes=0,
            processes=(process,),
            response="end",
        )
        stop(violation)
        assert seen.wait(within(5)) == -9
        for thread in threading.enumerate():
            if thread.name.startswith("stop-"):
                assert wider
                thread.join(within(10))
    assert (jobs[0].poll() == -9) == wider
    assert [one.poll() for one in jobs[1:]] == [None, None]


def test_a_job_that_does_not_end_is_given_up_in_time() -> None:
    clock = FakeClock()
    assert not end_job(1, USER, clock, processes=lambda *_: (Process(pid=2**22 - 1, started_ticks=1),))
    assert len(clock.slept) == ROUNDS


def test_one_that_shows_no_environment_at_one_look_is_ended_at_the_next(
    jobs: list[subprocess.Popen[bytes]],
) -> None:
    """A shell that goes on as another program has none for a moment (execve)."""
    looks = [0]

    def processes(job_id: int, user_id: int) -> tuple[Process, ...]:
        looks[0] += 1
        return () if looks[0] == 1 else processes_of(job_id, user_id)

    assert end_job(987001, USER, SystemClock(), processes=processes)
    assert jobs[0].wait(within(5)) == -9


def test_on_a_node_without_a_pid_left_every_job_is_stopped(
    jobs: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first job's error kept the guard from stopping the others of the sample."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    for job_id, one in ((987001, jobs[0]), (987002, jobs[1])):
        found = Process.running(one.pid)
        assert found is not None
        violation = Violation(
            kind="memory",
            gpu="GPU-0",
            job_id=job_id,
            user_id=USER,
            used_bytes=2,
            limit_bytes=1,
            free_bytes=0,
            processes=(found,),
        )
        stop(violation)
        notify(violation, Paths())
    assert [one.wait(within(5)) for one in jobs[:2]] == [-9, -9]
