"""Select a node's telemetry according to rad.toml."""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.core.clock import Clock
from slurm_plugin.core.config.load import TelemetryConfig
from slurm_plugin.monitor.gpus.dcgm import DcgmTelemetry
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.telemetry import Telemetry
from slurm_plugin.monitor.gpus.timed import TimelyTelemetry


def lasting_telemetry(settings: TelemetryConfig, clock: Clock) -> Telemetry:
    """Return telemetry for a long-running process that may hang with the driver: the monitor.

    Args:
        settings: `[telemetry]` of rad.toml.
        clock: Time.
    """
    if settings.source == "simulated":
        return SimulatedGpus(Path(settings.simulated_folder), clock=clock)
    nvml = NvmlTelemetry(clock=clock)
    if settings.source == "nvml":
        return nvml
    return DcgmTelemetry(nvml, only=settings.source == "dcgm")


def timely_telemetry(settings: TelemetryConfig, clock: Clock) -> Telemetry:
    """Return telemetry for a process that must end in time whatever the driver does: a hook, a command.

    Args:
        settings: `[telemetry]` of rad.toml.
        clock: Time.
    """
    return TimelyTelemetry(lambda: lasting_telemetry(settings, clock), timeout_s=settings.timeout_s)
