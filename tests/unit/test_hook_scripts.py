"""The scripts that slurmd starts: first on a busy processor, ended at the latest, and never with a status but 0."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from slurm_plugin.admin.own_files.templates import render, templates_folder
from slurm_plugin.core.process.run import spawn_daemon
from tests.timing import within


def script_with(folder: Path, name: str, python: str, *, limit_s: int = 30) -> Path:
    """Return a hook's script with a stand-in for the interpreter."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{python}\n")
    program.chmod(0o755)
    text = render(
        (templates_folder() / f"{name}.sh").read_text(),
        {"python": str(program), "config": "x.toml", "run": str(folder)},
        gpus=[],
    )
    script = folder / f"{name}.sh"
    script.write_text(
        text.replace("hook 30", f"hook {limit_s}").replace("hook 10", f"hook {min(limit_s, 10)}")
    )
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_a_hook_comes_first_on_the_processor(tmp_path: Path, name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("a niceness below 0 needs root")
    script = script_with(tmp_path, name, f"cut -d' ' -f19 /proc/self/stat > {tmp_path}/nice")
    subprocess.run([str(script)], env={}, check=True)  # slurmd's hooks have no PATH
    assert int((tmp_path / "nice").read_text()) == max(-20, os.nice(0) - 20)


@pytest.mark.parametrize("name", ["prolog", "epilog"])
@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$", "exec /nowhere/python"])
def test_whatever_ends_it_no_node_is_drained(tmp_path: Path, name: str, end: str) -> None:
    assert subprocess.run([str(script_with(tmp_path, name, end))], env={}, check=False).returncode == 0


@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_a_hook_that_is_killed_runs_once_more(tmp_path: Path, name: str) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    program = f"if [ -e {first} ]; then : > {again}; else : > {first}; kill -9 $$; fi"
    done = subprocess.run(
        [str(script_with(tmp_path, name, program))], env={}, check=True, capture_output=True
    )
    assert again.exists()
    assert b"status" not in done.stderr  # that is what slurmd's log would say


def test_an_interpreter_that_does_not_start_is_ended(tmp_path: Path) -> None:
    script = script_with(tmp_path, "prolog", "trap '' TERM; while :; do sleep 1; done", limit_s=1)
    start_s = time.monotonic()
    assert subprocess.run([str(script)], env={}, check=False).returncode == 0
    assert time.monotonic() - start_s < within(10)


def test_what_a_hook_leaves_running_has_no_better_place_than_others(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a niceness below 0 needs root")
    child = os.fork()
    if child == 0:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        pid = spawn_daemon(["sleep", "60"], env={}, log_path=tmp_path / "log", uid=0, gid=0)
        (tmp_path / "nice").write_text(f"{pid} {os.getpriority(os.PRIO_PROCESS, pid)}")
        os._exit(0)
    os.waitpid(child, 0)
    pid, niceness = (tmp_path / "nice").read_text().split()
    os.kill(int(pid), signal.SIGKILL)
    assert niceness == "0"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o640
