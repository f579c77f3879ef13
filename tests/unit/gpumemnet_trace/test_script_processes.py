"""What a traced command started is counted and ended, in whatever session it runs: torchrun makes one for each rank."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumemnet.script import processes, start

APART = """
    import subprocess, sys, time
    rank = "import time; held = b'x' * (300 << 20); open('rank', 'w').write('there'); time.sleep(600)"
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
    found = start.run(
        [sys.executable, "-c", "\n".join(line.strip() for line in APART.splitlines())],
        environment=os.environ | {"RAD_TEST_RANK": str(tmp_path)},
        limits=start.Limits(seconds=120.0, resident_bytes=250 << 20),
    )
    assert isinstance(found, start.Untraced)
    assert "of memory" in found.why
    assert waited(lambda: not list(processes.holding("RAD_TEST_RANK", str(tmp_path))))


def test_processes_are_found_by_what_they_were_started_with(tmp_path: Path) -> None:
    mark = {"RAD_TEST_MARK": str(tmp_path)}
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    mine = subprocess.Popen(sleeper, env=os.environ | mark, start_new_session=True)
    other = subprocess.Popen(sleeper, env=os.environ | {"RAD_TEST_MARK": f"{tmp_path}2"})
    try:
        assert waited(lambda: processes.holds(mine.pid, "RAD_TEST_MARK", str(tmp_path)))
        assert list(processes.holding("RAD_TEST_MARK", str(tmp_path))) == [mine.pid]
        assert processes.resident_bytes(mine.pid) > 0
        processes.end("RAD_TEST_MARK", str(tmp_path))
        assert waited(lambda: gone(mine.pid))
        assert other.poll() is None
    finally:
        for each in (mine, other):
            each.kill()
            each.wait()
    assert processes.resident_bytes(mine.pid) == 0
