"""Telemetry by rad.toml."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest
from fake_nvml import FakeGpu, FakeNvml
from fakes import FakeClock

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import TelemetryConfig
from slurm_plugin.core.errors import CommandError, DeviceError
from slurm_plugin.monitor.gpus import dcgm
from slurm_plugin.monitor.gpus import source as source_module
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from slurm_plugin.monitor.gpus.source import timely_telemetry


def test_simulated_gpus_that_hang_are_given_up_in_time_as_real_ones_are(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gpus.json")
    settings = TelemetryConfig(source="simulated", simulated_folder=str(tmp_path), timeout_s=0.2)
    with pytest.raises(DeviceError, match=r"no answer of the driver in 0\.2 s"):
        timely_telemetry(settings, SystemClock()).read()


@pytest.mark.parametrize(("source", "reported"), [("auto", "nvml-gpm"), ("nvml", "nvml-gpm"), ("dcgm", None)])
def test_dcgm_is_missed_only_where_it_alone_is_configured(
    monkeypatch: pytest.MonkeyPatch, source: Literal["auto", "nvml", "dcgm"], reported: str | None
) -> None:
    def no_dcgm(argv: Sequence[str], *, timeout_s: float) -> str:
        raise CommandError(tuple(argv), 127, "not installed")

    monkeypatch.setattr(dcgm, "run", no_dcgm)
    monkeypatch.setattr(
        source_module, "NvmlTelemetry", lambda clock: NvmlTelemetry(FakeNvml(FakeGpu()), clock=clock)
    )
    telemetry = source_module.lasting_telemetry(TelemetryConfig(source=source), FakeClock())
    if reported is None:
        with pytest.raises(DeviceError, match="start nvidia-dcgm"):
            telemetry.read()
    else:
        assert [reading.smact_source for reading in telemetry.read()] == [reported]
