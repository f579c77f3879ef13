"""Sources of readings of GPUs: NVML, DCGM or a simulation. What a reading holds is told in core/gpu.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from slurm_plugin.core.gpu import GpuCounters, GpuProcess, GpuReading, Source

__all__ = ["Activity", "GpuCounters", "GpuProcess", "GpuReading", "Source", "Telemetry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a card did over a short while; shares from 0 to 1, traffic in bytes a second; None if not told."""

    smact: float | None = None
    smocc: float | None = None
    graphics: float | None = None
    tensor: float | None = None
    dram: float | None = None
    pcie_tx_bytes_s: float | None = None
    pcie_rx_bytes_s: float | None = None
    nvlink_tx_bytes_s: float | None = None
    nvlink_rx_bytes_s: float | None = None


class Telemetry(Protocol):
    """A source of readings."""

    def read(self) -> tuple[GpuReading, ...]:
        """Return a reading of every GPU of this node, ordered by index.

        Raises:
            DeviceError: The driver is missing or does not answer in time.
        """
        ...
