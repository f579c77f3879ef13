"""What bounds a script, without torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpumemnet
from gpumemnet.errors import TraceError
from gpumemnet.tracing.script.bounds import CPU_SHARE, cleaned_up
from gpumemnet.tracing.script.files import MAX_FILE_BYTES
from gpumemnet.tracing.script.start import ScriptLimits, Untraced, run
from gpumemnet.units import MIB
from tests.timing import within

pytestmark = pytest.mark.slow


def ran(code: str, limits: ScriptLimits | None = None) -> Untraced:
    found = run([sys.executable, "-c", code], environment=os.environ, limits=limits)
    assert isinstance(found, Untraced)
    return found


def running(mark: str) -> list[int]:
    """Return the processes in whose command a text stands, but for this one's."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in os.fsdecode((entry / "cmdline").read_bytes()):
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def test_time_is_bounded_and_all_processes_are_ended() -> None:
    """Those, too, that left session and environment behind."""
    mark = f"600.{os.getpid()}"  # a shell starts at once, on a busy machine too
    command = ["/bin/sh", "-c", f"sleep {mark} & env -i setsid sleep {mark} & wait"]
    found = run(command, environment=os.environ, limits=ScriptLimits(seconds=5))
    assert isinstance(found, Untraced)
    assert found.why == (
        "its optimizer made no two steps within 5 s, the limit of a trace: prepare data beforehand, "
        "or trace it with less"
    )
    assert not running(mark)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda one: one.name)
def test_nothing_runs_on_when_rad_estimate_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    """A script traced on a login node would run there unnoticed."""
    mark = f"RAD_{os.getpid()}_{number}"
    apart = f"import time; time.sleep(600)  # apart {mark}"
    script = f"""
import subprocess, sys, time  # {mark}
subprocess.Popen([sys.executable, "-c", {apart!r}], start_new_session=True, env={{}})
time.sleep(600)
"""
    rads = "import os, sys; from gpumemnet.tracing.script.start import run; run(sys.argv[1:], environment=os.environ)"
    root = str(Path(gpumemnet.__file__).parent.parent)
    with subprocess.Popen(
        [sys.executable, "-c", rads, sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": root, "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL) if number is not signal.SIGKILL else None,
    ) as starter:  # under nohup tests ignore a hang-up, and so would what they start
        deadline = time.monotonic() + within(60)
        while not running(f"# apart {mark}\0") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert running(f"# apart {mark}\0"), "the script has started nothing"
        starter.send_signal(number)
        starter.wait(timeout=within(60))
    while running(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running(mark)
    assert starter.returncode == (-number if number is signal.SIGKILL else 128 + number)
    assert not list(tmp_path.glob("rad-script-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda one: one.name)
def test_nothing_starts_once_rad_estimate_was_killed_while_it_starts_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The new process has not yet requested a signal when its parent dies."""
    mark = f"RAD_EARLY_{os.getpid()}_{number}"
    rads = """
import os, sys, time
from pathlib import Path
from gpumemnet.tracing.script.start import run

class Slow:
    def begin(self):
        Path(sys.argv[1], "begun").touch()
        ends, parent = time.monotonic() + 60, os.getppid()
        while os.getppid() == parent and time.monotonic() < ends:
            time.sleep(0.01)
    def started(self): ...
    def end(self): return ""

run(sys.argv[2:], environment=os.environ, ways=[lambda *_: Slow()])
"""
    root = str(Path(gpumemnet.__file__).parent.parent)
    script = (
        f"import pathlib, time; pathlib.Path({str(tmp_path / 'ran')!r}).touch(); time.sleep(600)  # {mark}"
    )
    with subprocess.Popen(
        [sys.executable, "-c", rads, str(tmp_path), sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": root, "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL) if number is not signal.SIGKILL else None,
    ) as starter:
        deadline = time.monotonic() + within(60)
        while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        starter.send_signal(number)
        starter.wait(timeout=within(60))
    while running(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running(mark) and not (tmp_path / "ran").exists()
    assert number is signal.SIGKILL or not list(tmp_path.glob("rad-script-*"))


def test_a_script_that_ignores_a_hang_up_goes_on_ignoring_it() -> None:
    before = {one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGHUP, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with cleaned_up():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def test_whose_own_way_of_ending_is_set_keeps_it() -> None:
    before = signal.signal(signal.SIGTERM, print)
    try:
        with cleaned_up():
            assert signal.getsignal(signal.SIGTERM) is print
        assert signal.getsignal(signal.SIGTERM) is print
    finally:
        signal.signal(signal.SIGTERM, before)


def test_each_process_has_an_end_of_its_own_for_when_no_job_is_left_to_end_it() -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_CPU))"
    assert ran(code, ScriptLimits(seconds=90)).why.endswith(f"({90 * CPU_SHARE:.0f}, {90 * CPU_SHARE:.0f})")


def test_memory_is_bounded() -> None:
    code = "import time; held = b'x' * (400 << 20); time.sleep(600)"
    why = ran(code, ScriptLimits(seconds=120, resident_bytes=200 * MIB)).why
    assert "GiB of memory, the limit of a trace: trace it with less data" in why


def test_processes_are_bounded() -> None:
    code = "import os, time\nfor _ in range(80):\n  if not os.fork(): break\ntime.sleep(600)"
    assert ran(code, ScriptLimits(seconds=120)).why == (
        "it started more than 64 processes, the limit of a trace: trace it with fewer"
    )


def test_a_file_is_bounded() -> None:
    code = f"""
import os
file = os.open('checkpoint', os.O_WRONLY | os.O_CREAT)
print(os.write(file, bytes({MAX_FILE_BYTES} + 1)))
"""
    assert ran(code).why.endswith(f"its last words: {MAX_FILE_BYTES}")


@pytest.mark.parametrize("by", ["Python", "another program"])
def test_a_file_beyond_the_limit_is_named_with_the_limit_and_what_to_do(tmp_path: Path, by: str) -> None:
    data = tmp_path / "data"
    code = f"with open({str(data)!r}, 'wb') as file:\n for _ in range(257): file.write(bytes({MIB}))"
    command = [sys.executable, "-c", code]
    if by == "another program":  # it is killed, where Python gets an error
        command = ["/bin/sh", "-c", f"head -c {MAX_FILE_BYTES + 1} /dev/zero > {data}"]
    found = run(command, environment=os.environ)
    assert isinstance(found, Untraced)
    assert found.why == (
        "it wrote more than 256 MiB into one file, the limit of a trace: write or download that file beforehand, "
        "or only after two steps"
    )


def test_its_last_words_are_reported_in_one_line() -> None:
    assert ran("raise SystemExit('no data\\x1b[2J here')").why.endswith("its last words: no data [2J here")


def test_what_cannot_be_started_says_so() -> None:
    with pytest.raises(TraceError, match="cannot start /no/such/python"):
        run(["/no/such/python"], environment=os.environ)


def test_the_environments_own_sitecustomize_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    found = run([sys.executable, "-c", ""], environment={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert isinstance(found, Untraced)
    assert found.why.endswith("its last words: mine")
