"""What the tests on a real GPU share; they are skipped where NVML finds none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu.programs import Results

from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry


@pytest.fixture(scope="session")
def gpus() -> tuple[GpuReading, ...]:
    try:
        return NvmlTelemetry().read()
    except DeviceError as exc:
        pytest.skip(str(exc))


@pytest.fixture
def gpu(gpus: tuple[GpuReading, ...]) -> GpuReading:
    return gpus[0]


@pytest.fixture
def results(request: pytest.FixtureRequest, tmp_path: Path) -> Results:
    folder = Path(os.environ.get("RAD_GPU_RESULTS", str(tmp_path)))
    folder.mkdir(parents=True, exist_ok=True)
    name = request.node.name.removeprefix("test_").replace("[", ".").rstrip("]")
    return Results(folder, name)


@pytest.fixture
def run_folder() -> Iterator[Path]:
    # Short, because unix sockets allow 107 bytes, and open to other users.
    with tempfile.TemporaryDirectory(prefix="rad", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)
