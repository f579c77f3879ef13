"""`rad calibrate` on the real GPU: what it says, how long it takes, and what it changes in an estimate."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu.programs import PYTHON, Results, Training, driver_version, eventually

from slurm_plugin.core.config import toml
from slurm_plugin.core.config.load import Config, load_config
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.submission import MemoryEstimate, UserDirectives
from slurm_plugin.core.units import MIB, to_mib_up
from slurm_plugin.directives import directives_of, profile_of
from slurm_plugin.estimate import Estimator
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DIRECTIVE = "#RAD model=models/resnet18_torchinfo.txt batch_size=64 optimizer=sgd-momentum\n"
TRAINING = ("--model", "resnet18", "--size", "224", "--batch", "64", "--steps", "1500")
WARM_S = 60.0
"""The second run, with torch's files in the page cache."""
RUNS = 2


def calibrate() -> tuple[str, float]:
    """Run the command as an admin does; return what it printed, and how long it took in seconds."""
    started_s = time.monotonic()
    command = [str(Path(sys.prefix, "bin", "rad")), "calibrate", "--python", PYTHON]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, time.monotonic() - started_s


def resnet18(config: Config) -> MemoryEstimate:
    """Return what a site with this configuration expects of the training below."""
    directives = directives_of(DIRECTIVE, "job.sh", "")
    assert directives is not None
    read = profile_of(directives, (EXAMPLES,))
    assert read is not None
    estimate = Estimator.from_config(config).estimate(UserDirectives(profile=read[0]))
    assert estimate is not None
    return estimate


def used_bytes(uuid: str, pid: int) -> int:
    """Return what the driver counts for one process."""
    gpu = next(each for each in NvmlTelemetry().read() if each.uuid == uuid)
    return next((process.memory_bytes or 0 for process in gpu.processes if process.pid == pid), 0)


def real_training(gpu: GpuReading, folder: Path) -> tuple[int, int]:
    """Train a real model; return what the driver counted for it and what its allocator reserved at most, in bytes."""
    training = Training(folder, "check", *TRAINING, env={"CUDA_VISIBLE_DEVICES": gpu.uuid})
    try:
        training.wait_steps(reports=20)
        used = used_bytes(gpu.uuid, training.process.pid)
        eventually("the training ends", lambda: training.process.poll() is not None, 60.0)
    finally:
        training.stop()
    words = training.output().split()
    return used, int(words[words.index("peak") + 1]) * MIB


def test_calibrate(gpu: GpuReading, run_folder: Path, results: Results):
    runs = [calibrate() for _ in range(RUNS)]
    text = runs[-1][0]
    measured = toml.loads(text)
    results.add(
        gpu=gpu.name,
        driver=driver_version(),
        took_s=[took_s for _, took_s in runs],
        said=text,
    )
    assert gpu.name in text
    assert set(measured) == {"conv_base_mib", "base_mib"}
    assert all(100 < mib < 4000 for mib in measured.values())
    assert toml.loads(runs[0][0]) == pytest.approx(measured, abs=64)
    assert runs[-1][1] < WARM_S

    # The lines as they are, at the head of a rad.toml.
    path = run_folder / "rad.toml"
    path.write_text(
        f'{text}mode = "enforce"\n[partition.gpu]\ncollocate = true\ngpu_memory_mib = {to_mib_up(gpu.usable_bytes)}\n'
    )
    calibrated, usual = resnet18(load_config(path)), resnet18(Config())
    higher = resnet18(load_config(_with_more(path, measured["conv_base_mib"] + 300)))
    used, reserved = real_training(gpu, run_folder)
    results.add(
        table_estimate_mib=usual.estimate_bytes / MIB,
        calibrated_estimate_mib=calibrated.estimate_bytes / MIB,
        calibrated_upper_mib=calibrated.upper_bytes / MIB,
        held_mib=used / MIB,
        reserved_mib=reserved / MIB,
        base_of_real_training_mib=(used - reserved) / MIB,
    )
    assert higher.estimate_bytes - calibrated.estimate_bytes == pytest.approx(300 * MIB, rel=0.2)
    assert used <= calibrated.upper_bytes
    assert (used - reserved) / MIB == pytest.approx(measured["conv_base_mib"], abs=150)


def _with_more(path: Path, conv_base_mib: int) -> Path:
    """Return a copy of a rad.toml with another base."""
    lines = path.read_text().splitlines()
    more = [f"conv_base_mib = {conv_base_mib}" if line.startswith("conv_base") else line for line in lines]
    other = path.with_name("more.toml")
    other.write_text("\n".join(more) + "\n")
    return other
