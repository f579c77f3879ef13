"""What bounds a script, without torch."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from gpumemnet.errors import TraceError
from gpumemnet.script.start import MAX_FILE_BYTES, Limits, Untraced, run
from gpumemnet.units import MIB


def ran(code: str, limits: Limits | None = None) -> Untraced:
    found = run([sys.executable, "-c", code], environment=os.environ, limits=limits)
    assert isinstance(found, Untraced)
    return found


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_time_is_bounded_and_all_processes_are_ended(tmp_path: Path) -> None:
    # A shell starts at once, on a busy machine too.
    command = ["/bin/sh", "-c", f"sleep 600 & echo $! > {tmp_path / 'pid'}; wait"]
    found = run(command, environment=os.environ, limits=Limits(seconds=5))
    assert isinstance(found, Untraced)
    assert found.why == "its optimizer made no two steps within 5 s"
    pid, deadline = int((tmp_path / "pid").read_text()), time.monotonic() + 60
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)  # a killed process that is nobody's child any more ends a moment later
    assert not alive(pid)


def test_memory_is_bounded() -> None:
    code = "import time; held = b'x' * (400 << 20); time.sleep(600)"
    assert "GiB of memory" in ran(code, Limits(seconds=120, resident_bytes=200 * MIB)).why


def test_processes_are_bounded() -> None:
    code = "import os, time\nfor _ in range(80):\n  if not os.fork(): break\ntime.sleep(600)"
    assert ran(code, Limits(seconds=120)).why == "it started more than 64 processes"


def test_a_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    ran(f"open({str(path)!r}, 'wb').write(bytes({MAX_FILE_BYTES} + 1))")
    assert path.stat().st_size <= MAX_FILE_BYTES


def test_its_last_words_are_told_in_one_line() -> None:
    assert ran("raise SystemExit('no data\\x1b[2J here')").why.endswith("its last words: no data [2J here")


def test_what_cannot_be_started_says_so() -> None:
    with pytest.raises(TraceError, match="cannot start /no/such/python"):
        run(["/no/such/python"], environment=os.environ)


def test_the_environments_own_sitecustomize_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    found = run([sys.executable, "-c", ""], environment={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert isinstance(found, Untraced)
    assert found.why.endswith("its last words: mine")
