"""Start the programs of a measurement, which answer lines, and an MPS daemon over some GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm_plugin.core.clock import Deadline, SystemClock
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from slurm_plugin.mps.daemon import Daemon

CLOCK = SystemClock()
NO_LIMIT_BYTES = 140 << 30


class AnsweringProgram:
    """A program of this folder that says "ready", and answers lines."""

    def __init__(self, program: str, *arguments: object, env: Mapping[str, str]) -> None:
        """Start it.

        Args:
            program: Its module's name.
            arguments: Its arguments.
            env: Variables in addition to RAD's.
        """
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"two_gpu_jobs.{program}", *map(str, arguments)],
            env=dict(os.environ) | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def answer(self) -> str:
        """Return its next answer; its last words, where it ended."""
        assert self.process.stdout is not None
        last = ""
        for line in self.process.stdout:
            last = line.strip()
            if last.startswith(("ready", "rate", "error")):
                return last
        return f"ended: {last}"

    def rate(self) -> float | None:
        """Return its next answer as steps a second; None where it gave none."""
        word, _, value = self.answer().partition(" ")
        return round(float(value), 3) if word == "rate" else None

    def tell(self, line: object) -> None:
        """Send a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def lives(self) -> bool:
        """Tell whether it runs."""
        return self.process.poll() is None

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


@contextmanager
def mps(
    folder: Path, gpus: Sequence[str], limits: Mapping[int, int] | None = None
) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """Run a daemon over GPUs, as the Prolog would; yield the variables of its clients, and what it costs.

    Args:
        folder: The daemon's.
        gpus: Their UUIDs.
        limits: MiB that a client may allocate, by ordinal of these GPUs.
    """
    place = folder / "-".join(gpu[4:12] for gpu in gpus)
    control = "nvidia-cuda-mps-control"
    daemon = Daemon(place=place, gpu=",".join(gpus), user_id=os.geteuid(), control=control, clock=CLOCK)
    deadline = Deadline(CLOCK, 15.0)
    began_s, before = time.monotonic(), used_mib()
    process = daemon.start(deadline)
    server = daemon.start_server(NO_LIMIT_BYTES, deadline)
    for ordinal, mib in (limits or {}).items():
        daemon.ask(f"set_default_device_pinned_mem_limit {ordinal} {mib}M", deadline)
        daemon.ask(f"set_device_pinned_mem_limit {server.pid} {ordinal} {mib}M", deadline)
    costs = {"starts_s": round(time.monotonic() - began_s, 2), "server_mib": more_mib(before)}
    try:
        yield {"CUDA_MPS_PIPE_DIRECTORY": str(daemon.pipe), "CUDA_MPS_LOG_DIRECTORY": str(daemon.log)}, costs
    finally:
        daemon.quit(process, Deadline(CLOCK, 10.0))
        daemon.kill(server)


def used_mib() -> list[int]:
    """Return what is used of each GPU."""
    return [round(gpu.memory_used_bytes / 2**20) for gpu in NvmlTelemetry().read()]


def more_mib(before: Sequence[int]) -> list[int]:
    """Return how much more is used of each GPU than before."""
    return [now - then for now, then in zip(used_mib(), before, strict=True)]
