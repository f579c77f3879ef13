"""Nothing that a child does, or fails to do, holds up its parent."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from fakes import hangs_for_good

from slurm_plugin.core.process import child
from slurm_plugin.core.process.child import Child, ChildError, in_child
from tests.timing import within


def test_the_answer_arrives_whole_whatever_is_in_it() -> None:
    content = bytes(range(256)) * 20_000
    assert in_child(lambda: content, timeout_s=30) == content
    assert in_child(bytes, timeout_s=30) == b""


def test_a_child_that_hangs_is_killed_in_time() -> None:
    start_s = time.monotonic()
    hangs = Child(hangs_for_good, timeout_s=0.3)
    pid = hangs._pid
    with pytest.raises(ChildError, match="out of time"):
        hangs.answer()
    assert time.monotonic() - start_s < within(3)
    deadline_s = time.monotonic() + within(10)
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline_s:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            break
    with pytest.raises(OSError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    "end", [lambda: os._exit(0), lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0]
)
def test_a_child_that_dies_is_no_reason_to_wait(end: object) -> None:
    start_s = time.monotonic()
    with pytest.raises(ChildError, match="ended early"):
        in_child(end, timeout_s=30)  # type: ignore[arg-type]
    assert time.monotonic() - start_s < within(10)


def test_a_grandchild_that_lives_on_holds_no_job_up() -> None:
    def task() -> bytes:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        return b"done"

    def dies() -> bytes:
        task()
        os._exit(1)

    start_s = time.monotonic()
    assert in_child(task, timeout_s=15) == b"done"
    with pytest.raises(ChildError, match="ended early"):
        in_child(dies, timeout_s=15)
    assert time.monotonic() - start_s < within(10)


def test_a_child_has_none_of_the_hooks_files(capfd: pytest.CaptureFixture[str]) -> None:
    def task() -> bytes:
        for stream in range(3):
            assert os.readlink(f"/proc/self/fd/{stream}") == "/dev/null"
        return str(os.getsid(0) == os.getpid()).encode()

    assert in_child(task, timeout_s=30) == b"True"
    assert capfd.readouterr() == ("", "")


def test_no_process_left_is_an_expected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_fork)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ChildError, match="no process could be started"):
        in_child(bytes, timeout_s=1)
    assert set(os.listdir("/proc/self/fd")) == before


def test_an_answer_that_came_in_time_counts_however_late_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Child(lambda: b"here", timeout_s=60)
    os.waitid(os.P_PID, first._pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(child, "monotonic_s", lambda: time.monotonic() + 100)
    assert first.answer() == b"here"


def test_a_kernel_without_pidfds_answers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", none_here)
    assert in_child(lambda: b"here", timeout_s=30) == b"here"
    with pytest.raises(ChildError, match="ended early"):
        in_child(lambda: os._exit(0), timeout_s=30)


def test_children_that_ended_by_themselves_are_waited_for_when_the_next_one_starts() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert in_child(lambda: b"x", timeout_s=30) == b"x"
    ended = set(child._unreaped)
    for pid in ended:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and no job has waited for it
    assert in_child(lambda: b"x", timeout_s=30) == b"x"
    assert not child._unreaped & ended
    for pid in ended:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    assert set(os.listdir("/proc/self/fd")) == before


def _has_autogroups() -> bool:
    switch = Path("/proc/sys/kernel/sched_autogroup_enabled")
    return Path("/proc/self/autogroup").exists() and switch.exists() and switch.read_text().strip() == "1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
@pytest.mark.skipif(not _has_autogroups(), reason="the kernel has no autogroups, or they are off")
def test_the_session_of_a_hurried_child_is_hurried_too() -> None:
    """Else its niceness would count for nothing next to the sessions of jobs."""

    def group() -> bytes:
        return Path("/proc/self/autogroup").read_bytes()

    def hurried() -> bytes:
        os.nice(-7 - os.nice(0))  # from whatever it is: a tester's may be 19
        return in_child(group, timeout_s=30)

    assert in_child(group, timeout_s=30).split()[1:] == [b"nice", b"0"]
    assert in_child(hurried, timeout_s=30).split()[1:] == [b"nice", b"-7"]
