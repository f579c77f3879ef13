from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.core.logs.daemon_log import JournalFormatter
from slurm_plugin.core.process.systemd import inherited_listener, notify, writes_to_journal
from tests.timing import within


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_gets_each_message(tmp_path: Path, abstract: bool) -> None:
    name = f"@rad-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name[1:]}" if abstract else name)
        manager.settimeout(within(5))
        notify("READY=1\nSTATUS=all is well", {"NOTIFY_SOCKET": name})
        assert manager.recv(100) == b"READY=1\nSTATUS=all is well"


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all", "vsock:2:1234"])
def test_without_a_listener_nothing_happens(address: str) -> None:
    notify("READY=1", {"NOTIFY_SOCKET": address})
    notify("READY=1", {})


def test_only_the_socket_at_our_path_is_taken(tmp_path: Path) -> None:
    """File descriptors 3 and 4 must be free for this, so it happens in a process of its own."""
    program = f"""
import os, socket
from pathlib import Path
from slurm_plugin.core.process.systemd import inherited_listener
made = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_INET)]
paths = [Path({str(tmp_path)!r}) / name for name in "ab"]
for one, path in zip(made, paths):
    one.bind(str(path)); one.listen()
for fd, one in zip((13, 14, 15), made): os.dup2(one.fileno(), fd)
for one in made: one.close()
for fd in (3, 4, 5): os.dup2(fd + 10, fd)
env = dict(LISTEN_PID=str(os.getpid()), LISTEN_FDS="3", LISTEN_FDNAMES="x:y:z", HOME="/")
own = inherited_listener(paths[1], env)
assert own.getsockname() == str(paths[1]) and env == dict(HOME="/"), env
assert not os.get_inheritable(own.fileno()) and not os.get_inheritable(4)
assert inherited_listener(paths[1], env) is None, "nothing is promised any longer"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=within(60))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("pid", "count"), [("1", "1"), ("own", "none"), ("", "")])
def test_what_is_meant_for_another_process_is_not_touched(tmp_path: Path, pid: str, count: str) -> None:
    assert (
        inherited_listener(
            tmp_path / "a", {"LISTEN_PID": str(os.getpid()) if pid == "own" else pid, "LISTEN_FDS": count}
        )
        is None
    )


@pytest.mark.parametrize(("level", "prefix"), [("debug", 7), ("info", 6), ("warning", 4), ("error", 3)])
def test_a_line_of_the_journal_carries_its_level(level: str, prefix: int) -> None:
    number = getattr(logging, level.upper())
    record = logging.LogRecord("radd", number, "x.py", 1, "line\n<0>forged", (), None)
    assert JournalFormatter().format(record) == f"<{prefix}>radd: line <0>forged"


def test_each_line_of_a_traceback_carries_it() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        record = logging.LogRecord("radd", logging.ERROR, "x.py", 1, "it failed", (), sys.exc_info())
    assert all(line.startswith("<3>") for line in JournalFormatter().format(record).splitlines())


def test_a_terminal_is_not_the_journal() -> None:
    found = os.fstat(2)
    assert writes_to_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
    assert not writes_to_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"})
    assert not writes_to_journal({})
