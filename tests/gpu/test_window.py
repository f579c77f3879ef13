"""What the monitor sees of real jobs: their memory, their activity, their unmanaged processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu.programs import Client, Results, Training, eventually

from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.window import read_job, read_window

pytestmark = pytest.mark.gpu


def test_window_and_records(gpu: GpuReading, run_folder: Path, results: Results):
    config = run_folder / "rad.toml"
    config.write_text(f'[paths]\nrun = "{run_folder}/r"\nlog = "{run_folder}/log"\n')
    argv = [sys.executable, "-I", "-m", "slurm_plugin.monitor.daemon", "--config", str(config)]
    unmanaged = Client(1024, env={"CUDA_VISIBLE_DEVICES": gpu.uuid})
    training = Training(run_folder, "job", "--model", "resnet18", "--size", "64", env={"SLURM_JOB_ID": "77"})
    with subprocess.Popen(argv) as monitor:
        try:
            unmanaged.wait_ready()
            training.wait_steps()
            time.sleep(4.0)
            eventually("record", lambda: read_job(run_folder / "r", 77) is not None)
            usage = read_job(run_folder / "r", 77)
            window = read_window(run_folder / "r", now_s=time.time())
            assert usage is not None
            assert window is not None
            seen = {process.pid: process.memory_bytes for process in window[0].processes}
            results.add(
                job_peak_mib=(usage.peak_bytes or 0) / 2**20,
                job_mean_smact=usage.mean_smact,
                job_p95_smact=usage.p95_smact,
                job_energy_j=usage.energy_j,
                samples=usage.samples,
                unmanaged_mib=(seen[unmanaged.pid] or 0) / 2**20,
                reading=str(window[0]),
            )
            others = [used or 0 for pid, used in seen.items() if pid != unmanaged.pid]
            assert usage.peak_bytes == max(*others, usage.peak_bytes or 0)
            assert (usage.energy_j or 0.0) > 0.0
            assert (usage.mean_smact or 0.0) > 0.1
            assert not list((run_folder / "r" / "monitor" / "jobs").glob(f"{unmanaged.pid}.json"))
        finally:
            monitor.kill()
            training.stop()
            unmanaged.kill()
