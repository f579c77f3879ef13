"""Measure CPU share and memory of rad-monitor, and of nvidia-smi where there is one.

    .rad/venv/bin/python bench/cost/monitor_overhead.py                  # this machine's GPUs, or four simulated ones
    .rad/venv/bin/python bench/cost/monitor_overhead.py --seconds 60

How much it slows trainings down is measured by tests/gpu/test_overhead.py, on a real GPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.units import GIB, MIB
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.simulated_gpus import GpuSpec


def main() -> None:
    """Run each program for a while and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rad") as name:
        folder = Path(name)
        commands = {
            "rad-monitor": _monitor(folder),
            "rad-monitor --metrics": [*_monitor(folder), "--metrics", "0"],
        }
        if shutil.which("nvidia-smi"):
            query = "--query-gpu=memory.used,utilization.gpu,power.draw"
            commands["nvidia-smi -l 1"] = ["nvidia-smi", query, "--format=csv", "-l", "1"]
        print(f"{'program':<24} {'CPU of one core':>16} {'RSS':>10}")
        for title, argv in commands.items():
            share, rss_bytes = _measured(argv, options.seconds)
            print(f"{title:<24} {share:>15.2%}  {rss_bytes / MIB:>6.1f} MiB")


def _monitor(folder: Path) -> list[str]:
    config = folder / "rad.toml"
    text = f'[paths]\nrun = "{folder}/run"\nlog = "{folder}/log"\n'
    try:
        gpus = NvmlTelemetry().read()
        print(f"{len(gpus)} x {gpus[0].name}")
    except DeviceError:
        devices = [GpuSpec(uuid=f"GPU-{n}", index=n, name="S", memory_total_bytes=40 * GIB) for n in range(4)]
        SimulatedGpus.create(folder / "gpus", devices)
        text += f'[telemetry]\nsource = "simulated"\nsimulated_folder = "{folder}/gpus"\n'
        print("4 simulated GPUs")
    config.write_text(text)
    return [sys.executable, "-I", "-m", "slurm_plugin.monitor.daemon", "--config", str(config)]


def _measured(argv: list[str], seconds: float) -> tuple[float, int]:
    """Return the CPU share and the largest memory of a program, after its start."""
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            time.sleep(3.0)
            before_s, start_s = _cpu_s(process.pid), time.monotonic()
            time.sleep(seconds)
            share = (_cpu_s(process.pid) - before_s) / (time.monotonic() - start_s)
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        finally:
            process.terminate()
    return share, pages * os.sysconf("SC_PAGE_SIZE")


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process by its own clock, finer than the ticks in /proc (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


if __name__ == "__main__":
    main()
