"""Telemetry by rad.toml."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config import TelemetryConfig
from slurm_plugin.core.errors import DeviceError
from slurm_plugin.monitor.source import timely_telemetry


def test_simulated_gpus_that_hang_are_given_up_in_time_as_real_ones_are(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cards.json")
    settings = TelemetryConfig(source="simulated", simulated_folder=str(tmp_path), timeout_s=0.2)
    with pytest.raises(DeviceError, match=r"did not answer in 0\.2 s"):
        timely_telemetry(settings, SystemClock()).read()
