"""Prolog and Epilog as programs on a real GPU: how long they take, and what they do when the node is in trouble."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu.programs import Results, eventually

from slurm_plugin.core.booking.verification import partition_mark
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.comments.signed_comment import signed_booking
from slurm_plugin.core.ledger.store import LedgerStore, boot_id
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB, to_mib_up
from slurm_plugin.monitor.window import read_window

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system of its own"),
]

RUNS = int(os.environ.get("RAD_HOOK_RUNS", "15"))


class Node:
    """A node without Slurm: hooks are started with the environment that slurmd would give them."""

    def __init__(self, folder: Path, gpu: GpuReading, sharing: str = "streams") -> None:
        self.folder, self.gpu = folder, gpu
        self.run = folder / "r"
        self.run.mkdir(mode=0o755)
        key = folder / "key"
        key.write_bytes(secrets.token_bytes(32))
        key.chmod(0o600)
        self.key = key.read_bytes()
        self.config = folder / "rad.toml"
        self.config.write_text(
            f"""
[paths]
run = "{self.run}"
state = "{folder}/state"
key = "{key}"
socket = "{folder}/radd.sock"
log = "{folder}/log"
slurm_conf = "{folder}/slurm.conf"
[partition.gpu]
collocate = true
gpu_memory_mib = {to_mib_up(gpu.usable_bytes) - 1}
sharing = "{sharing}"
pin = "bound"
"""
        )
        (folder / "slurm.conf").write_text("ClusterName=none\n")

    def hook(self, module: str, job_id: int, booking: Booking | None = None, **more: str) -> float:
        """Run a hook and return how long it took in seconds."""
        env = {
            "SLURM_JOB_ID": str(job_id),
            "SLURM_JOB_UID": "4711",
            "SLURM_JOB_GID": "4711",
            "SLURM_JOB_USER": "nobody",
            "SLURM_JOB_PARTITION": "gpu",
            "SLURM_JOB_GPUS": str(self.gpu.index),
            "SLURMD_NODENAME": "n0",
            "SLURM_CONF": f"{self.folder}/slurm.conf",
            **more,
        }
        if booking is not None:
            env["SLURM_JOB_COMMENT"] = signed_booking(booking, user_id=4711, key=self.key)
        started_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-I", "-m", module, "--config", str(self.config)],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        took_s = time.monotonic() - started_s
        assert done.returncode == 0, done.stderr
        return took_s

    def allocation(self) -> dict[int, list[str]]:
        store = LedgerStore(self.run, clock=SystemClock(), boot_id=boot_id())
        return {allocation.job_id: list(allocation.gpus) for allocation in store.read().ledger.allocations}

    def log(self, hook: str = "prolog") -> str:
        return (self.folder / "log" / f"{hook}.log").read_text()

    def environment(self, job_id: int) -> str:
        return (self.run / "placed" / str(job_id)).read_text()


HERE = (partition_mark("gpu"),)
SHARED = Booking(kind="shared", memory_bytes=4 * GIB, estimate_bytes=3 * GIB, shards=4, partitions=HERE)
WHOLE = Booking(kind="whole", partitions=HERE)


@pytest.fixture
def monitor(run_folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait(10)


def start_monitor(node: Node) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "slurm_plugin.monitor.daemon", "--config", str(node.config)]
    )
    eventually("window", lambda: read_window(node.run, now_s=time.time()) is not None, 20.0)
    return process


def test_hook_times(
    gpu: GpuReading, run_folder: Path, monitor: list[subprocess.Popen[bytes]], results: Results
):
    node = Node(run_folder, gpu)
    for mark in ("two_samples", "window"):
        if mark == "window":
            monitor.append(start_monitor(node))
        prologs, epilogs = [], []
        for number in range(RUNS):
            prologs.append(node.hook("prolog", 100 + number, SHARED))
            assert node.allocation() == {100 + number: [gpu.uuid]}, node.log()
            epilogs.append(node.hook("epilog", 100 + number, SHARED, SLURM_JOB_EXIT_CODE="0"))
            assert node.allocation() == {}
        results.add(
            **{
                f"{mark}_prolog_p50_ms": statistics.median(prologs) * 1000,
                f"{mark}_prolog_p95_ms": sorted(prologs)[int(0.95 * RUNS)] * 1000,
                f"{mark}_epilog_p50_ms": statistics.median(epilogs) * 1000,
                f"{mark}_epilog_p95_ms": sorted(epilogs)[int(0.95 * RUNS)] * 1000,
            }
        )
    assert f"RAD_GPUS={gpu.uuid}" in (node.hook("prolog", 1, SHARED), node.environment(1))[1]


def test_hook_times_with_mps(gpu: GpuReading, run_folder: Path, results: Results):
    node = Node(run_folder, gpu, sharing="mps")
    times = [node.hook("prolog", 100 + number, SHARED) for number in range(4)]
    results.add(first_prolog_ms=times[0] * 1000, later_prologs_ms=[each * 1000 for each in times[1:]])
    assert "CUDA_MPS_PIPE_DIRECTORY" in node.environment(103), node.log()
    times = [node.hook("epilog", 100 + number, SHARED, SLURM_JOB_EXIT_CODE="0") for number in range(4)]
    results.add(epilogs_ms=[each * 1000 for each in times[:-1]], last_epilog_ms=times[-1] * 1000)
    assert node.allocation() == {}
    assert not list((node.run / "mps" / gpu.uuid).glob("4711/pipe"))


def test_kill_9_of_the_monitor(
    gpu: GpuReading, run_folder: Path, monitor: list[subprocess.Popen[bytes]], results: Results
):
    node = Node(run_folder, gpu)
    process = start_monitor(node)
    monitor.append(process)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    eventually("window stale", lambda: read_window(node.run, now_s=time.time()) is None, 10.0)
    took_s = node.hook("prolog", 7, SHARED)
    assert node.allocation() == {7: [gpu.uuid]}
    node.hook("epilog", 7, SHARED, SLURM_JOB_EXIT_CODE="0")
    assert node.allocation() == {}
    monitor.append(start_monitor(node))
    results.add(prolog_without_monitor_ms=took_s * 1000, restarted="window is back")


def test_a_full_run(gpu: GpuReading, run_folder: Path, results: Results):
    node = Node(run_folder, gpu)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "rad", str(node.run)], check=True, timeout=10)
    try:
        node.hook("prolog", 1, SHARED)
        with (node.run / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))
        node.hook("prolog", 2, WHOLE)
        full = node.allocation()
        node.hook("epilog", 1, SHARED, SLURM_JOB_EXIT_CODE="0")
        after = node.allocation()
        (node.run / "filler").unlink()
        node.hook("prolog", 3, WHOLE)
        emptied = node.allocation()
        results.add(while_full=full, after_epilog=after, after_emptying=emptied)
        assert full == {1: [gpu.uuid]}
        assert 1 not in after
        assert emptied == {3: [gpu.uuid]}
    finally:
        subprocess.run(["umount", str(node.run)], check=True, timeout=10)


def test_an_exclusive_gpu_stays_exclusive(gpu: GpuReading, run_folder: Path):
    node = Node(run_folder, gpu)
    node.hook("prolog", 1, WHOLE)
    node.hook("prolog", 2, SHARED)
    assert node.allocation() == {1: [gpu.uuid]}
    assert "not requeued: of the 1 GPU that it may have none is shared or idle" in node.log()
