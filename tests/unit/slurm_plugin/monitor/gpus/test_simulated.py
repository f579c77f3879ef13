from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.simulated_gpus import GpuFullError, GpuSpec
from slurm_plugin.monitor.gpus.telemetry import Telemetry

HOLDER = """
import sys
from pathlib import Path
from slurm_plugin.monitor.gpus.simulated import GpuFullError, SimulatedGpus
gpus = SimulatedGpus(Path(sys.argv[1]))
try:
    gpus.hold(sys.argv[2], int(sys.argv[3]), smact=0.6)
except GpuFullError:
    print("full", flush=True)
else:
    print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def gpus(tmp_path: Path) -> SimulatedGpus:
    physical_gpus = [
        GpuSpec(
            uuid=f"GPU-{i}", index=i, name="Simulated", memory_total_bytes=16 * GIB, memory_reserved_bytes=GIB
        )
        for i in range(2)
    ]
    return SimulatedGpus.create(tmp_path / "gpus", physical_gpus)


def holder(tmp_path: Path, uuid: str, n_bytes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "gpus"), uuid, str(n_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_it_is_a_telemetry_source(gpus: SimulatedGpus) -> None:
    source: Telemetry = gpus
    assert [(gpu.index, gpu.uuid, gpu.free_bytes, gpu.smact) for gpu in source.read()] == [
        (0, "GPU-0", 15 * GIB, 0.0),
        (1, "GPU-1", 15 * GIB, 0.0),
    ]


def test_what_a_process_holds_is_seen_with_its_pid_until_it_is_released(gpus: SimulatedGpus) -> None:
    gpus.hold("GPU-1", 4 * GIB, smact=0.5)
    gpus.hold("GPU-1", 5 * GIB, smact=0.25)
    first, second = gpus.read()
    assert first.memory_used_bytes == 0
    assert (second.memory_used_bytes, second.smact) == (5 * GIB, 0.25)
    assert [(p.pid, p.memory_bytes) for p in second.processes] == [(os.getpid(), 5 * GIB)]
    gpus.set_smact(0.75)
    assert gpus.read()[1].smact == 0.75
    gpus.release()
    assert gpus.read()[1].free_bytes == 15 * GIB


def test_a_cap_counts_like_a_smaller_gpu_and_refusal_changes_nothing(gpus: SimulatedGpus) -> None:
    gpus.hold("GPU-0", 3 * GIB, cap_bytes=4 * GIB)
    with pytest.raises(GpuFullError) as refused:
        gpus.hold("GPU-0", 5 * GIB, cap_bytes=4 * GIB)
    assert (refused.value.total_bytes, refused.value.free_bytes) == (4 * GIB, GIB)
    assert gpus.read()[0].memory_used_bytes == 3 * GIB


def test_two_processes_share_one_gpu_and_load_it_together(gpus: SimulatedGpus, tmp_path: Path) -> None:
    processes = [holder(tmp_path, "GPU-0", 6 * GIB) for _ in range(2)]
    try:
        assert [answer(process) for process in processes] == ["held", "held"]
        assert (gpus.read()[0].memory_used_bytes, gpus.read()[0].smact) == (12 * GIB, 1.0)
        with pytest.raises(GpuFullError) as refused:
            gpus.hold("GPU-0", 4 * GIB)
        assert (refused.value.total_bytes, refused.value.free_bytes) == (15 * GIB, 3 * GIB)
    finally:
        for process in processes:
            process.communicate("")


def test_the_memory_of_a_killed_process_is_free(gpus: SimulatedGpus, tmp_path: Path) -> None:
    process = holder(tmp_path, "GPU-0", 15 * GIB)
    assert answer(process) == "held"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert gpus.read()[0].memory_used_bytes == 0
    assert list((tmp_path / "gpus" / "processes").iterdir()) == []


def test_racing_processes_never_get_more_than_the_gpu_has(gpus: SimulatedGpus, tmp_path: Path) -> None:
    processes = [holder(tmp_path, "GPU-0", 4 * GIB) for _ in range(6)]
    try:
        assert sorted(answer(process) for process in processes) == ["full"] * 3 + ["held"] * 3
    finally:
        for process in processes:
            process.communicate("")


def test_a_missing_simulation_and_an_unknown_gpu_are_device_errors(
    gpus: SimulatedGpus, tmp_path: Path
) -> None:
    with pytest.raises(DeviceError, match="no simulated GPUs here"):
        SimulatedGpus(tmp_path / "nowhere").read()
    with pytest.raises(DeviceError, match="no simulated GPU GPU-9"):
        gpus.hold("GPU-9", GIB)
