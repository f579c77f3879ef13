"""What a traced command started is counted and ended, in whatever session it runs: torchrun makes one for each rank."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumemnet.tracing.script import processes, start

APART = """
    import subprocess, sys, time
    rank = "import time; held = b'x' * (300 << 20); time.sleep(600)  # MARK"
    subprocess.Popen([sys.executable, "-c", rank], start_new_session=True)
    time.sleep(600)
"""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def waited(happens: object, deadline_s: float = 60.0) -> bool:
    ends = time.monotonic() + deadline_s
    while not happens():  # type: ignore[operator]
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


def test_a_rank_in_a_session_of_its_own_counts_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mark = f"MARK of {tmp_path}"
    found = start.run(
        [sys.executable, "-c", "\n".join(line.strip() for line in APART.splitlines()).replace("MARK", mark)],
        environment=os.environ,
        limits=start.ScriptLimits(seconds=120.0, resident_bytes=250 << 20),
    )
    assert isinstance(found, start.Untraced)
    assert "of memory" in found.why
    assert not [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark in command_of(pid)]


def command_of(pid: int) -> str:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return ""


def test_processes_are_found_whatever_they_left_behind() -> None:
    sleeper = "import time; time.sleep(600)"
    orphan = (
        "import subprocess, sys; "
        f"subprocess.Popen([sys.executable, '-c', {sleeper!r}], env={{}}, start_new_session=True)"
    )
    other = subprocess.Popen([sys.executable, "-c", sleeper])
    try:
        with processes.adopting() as started:
            subprocess.run([sys.executable, "-c", orphan], check=True)
            assert waited(lambda: len(started.alive()) == 1)
            (pid,) = started.alive()
            assert processes.resident_bytes(pid) > 0
            started.end()
            assert started.alive() == []
            assert gone(pid)
            assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert processes.resident_bytes(pid) == 0
