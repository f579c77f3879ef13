"""Readings of this node's GPUs: the monitor's window where it is fresh, else two samples of our own."""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config import Config
from slurm_plugin.core.gpu import GpuReading
from slurm_plugin.monitor.window import read_window


def read_gpus(config: Config, clock: Clock) -> tuple[GpuReading, ...]:
    """Return a reading of every GPU of this node.

    Raises:
        DeviceError: There is neither a monitor nor a driver that answers.
    """
    window = read_window(Path(config.paths.run), now_s=clock.now_s())
    if window is not None:
        return window
    from slurm_plugin.monitor.source import timely_telemetry

    return timely_telemetry(config.telemetry, clock).read()
