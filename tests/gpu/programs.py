"""Programs on a real GPU, started and watched by the tests."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pynvml

from tests.slurmstepd import step

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("RAD_TORCH_PYTHON", sys.executable)
"""The Python that has torch; the environment of RAD need not."""


def driver_version() -> str:
    """Return the version of NVIDIA's driver."""
    pynvml.nvmlInit()
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def eventually(what: str, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Return as soon as a condition holds; fail if it does not in time."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.02)


def started(argv: Sequence[str], env: Mapping[str, str], user: int | None) -> Mapping[str, Any]:
    """Return what Popen starts for a program: below a slurmstepd if its environment names a job."""
    job = env.get("SLURM_JOB_ID")
    if job is not None and os.geteuid() == 0:
        return step(_programs(), int(job), user or 0, argv)
    groups = None if user is None else []
    return {"args": argv, "user": user, "group": user, "extra_groups": groups}


@cache
def _programs() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="rad", dir="/tmp")
    atexit.register(folder.cleanup)
    Path(folder.name).chmod(0o755)
    return Path(folder.name)


class Training:
    """A run of training.py."""

    def __init__(self, folder: Path, name: str, *options: str, env: Mapping[str, str] | None = None) -> None:
        self.progress = folder / f"{name}.progress"
        self.log = folder / f"{name}.log"
        argv = [PYTHON, str(HERE / "training.py"), str(self.progress), *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                **started(argv, env or {}, 0),
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def reports(self) -> list[tuple[float, int]]:
        try:
            lines = self.progress.read_text().splitlines()
        except OSError:
            return []
        rows = [line.split() for line in lines]
        return [(float(row[0]), int(row[1])) for row in rows if len(row) == 2]

    def wait_steps(self, reports: int = 5, timeout_s: float = 60.0) -> None:
        """Wait until it is really training."""
        eventually(
            f"{self.log.name}: {reports} reports",
            lambda: len(self.reports()) >= reports or self.process.poll() is not None,
            timeout_s,
        )
        assert self.process.poll() is None, self.log.read_text()[-2000:]

    def rate(self, start_s: float, end_s: float) -> float:
        """Return images per second between two moments."""
        inside = [report for report in self.reports() if start_s <= report[0] <= end_s]
        assert len(inside) >= 2, f"{self.log.name}: {len(inside)} reports"
        return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])

    def longest_pause_s(self, start_s: float, end_s: float) -> float:
        """Return the longest time between two reports in a span."""
        times = [at for at, _ in self.reports() if start_s <= at <= end_s]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def stop(self) -> int:
        """End it and return its status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(30)

    def output(self) -> str:
        return self.log.read_text(errors="replace")


class Client:
    """A run of cuda_client.py."""

    def __init__(
        self, mib: int, mode: str = "hold", *, env: Mapping[str, str], user: int | None = None
    ) -> None:
        self.process = subprocess.Popen(
            **started([sys.executable, str(HERE / "cuda_client.py"), str(mib), mode], env, user),
            env={"PATH": "/usr/bin:/bin", **_library_path(), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._text = ""

    @property
    def pid(self) -> int:
        """Return the process that uses the GPU; before it is ready, what started it."""
        found = re.search(r"^ready (\d+)", self.said(), re.MULTILINE)
        return int(found[1]) if found else self.process.pid

    def said(self) -> str:
        assert self.process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.process.stdout.fileno(), 1 << 16):
                self._text += part.decode()
        return self._text

    def wait_ready(self, timeout_s: float = 20.0) -> None:
        eventually(
            "client ready", lambda: "ready" in self.said() or self.process.poll() is not None, timeout_s
        )
        assert "ready" in self.said(), self.said()

    def beats(self) -> int:
        return self.said().count("beat ")

    def beats_on(self, more: int = 5) -> bool:
        """Return whether it goes on working."""
        wanted = self.beats() + more
        end_s = time.monotonic() + 10.0
        while self.beats() < wanted and self.process.poll() is None and time.monotonic() < end_s:
            time.sleep(0.05)
        return self.beats() >= wanted

    def fault(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


def _library_path() -> dict[str, str]:
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


class Results:
    """One JSON file of figures for each test, in the folder that RAD_GPU_RESULTS names."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.json"
        self._rows: dict[str, object] = {}

    def add(self, **figures: object) -> None:
        """Keep figures, also if the test fails later."""
        self._rows |= figures
        self._path.write_text(json.dumps(self._rows, indent=1, default=str) + "\n")
        print(json.dumps(figures, default=str), flush=True)
