"""Sources of GPU readings: NVML, DCGM or a simulation. core/records/gpu.py describes a reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from slurm_plugin.core.records.gpu import GpuReading

_ROUNDING = 1.1
"""A counter may report slightly more than 1; more than this is not a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuActivity:
    """Activity of a GPU over a short time; shares from 0 to 1, traffic in bytes a second; None if not reported."""

    smact: float | None = None
    smocc: float | None = None
    graphics: float | None = None
    tensor: float | None = None
    dram: float | None = None
    pcie_tx_bytes_s: float | None = None
    pcie_rx_bytes_s: float | None = None
    nvlink_tx_bytes_s: float | None = None
    nvlink_rx_bytes_s: float | None = None


def share(value: float) -> float | None:
    """Return a share between 0 and 1; None where a driver reported an invalid one.

    >>> share(0.5), share(1.003), share(-0.01), share(float("nan")), share(42949672.95)
    (0.5, 1.0, None, None, None)
    """
    return min(value, 1.0) if 0.0 <= value <= _ROUNDING else None


class Telemetry(Protocol):
    """A source of readings."""

    def read(self) -> tuple[GpuReading, ...]:
        """Return a reading of every GPU of this node, ordered by index.

        Raises:
            DeviceError: The driver is missing or does not answer in time.
        """
        ...
