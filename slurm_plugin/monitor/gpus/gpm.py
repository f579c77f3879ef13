"""NVML's GPU performance monitoring (GPM): the activity of a GPU between two samples, Hopper and later.

Source: https://docs.nvidia.com/deploy/nvml-api/, "GPM Functions". On an H200 (driver 580) one sample costs 0.7 ms.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from slurm_plugin.core.units import MIB
from slurm_plugin.monitor.gpus.nvml_binding import Nvml
from slurm_plugin.monitor.gpus.telemetry import GpuActivity, share

if TYPE_CHECKING:
    from slurm_plugin.monitor.gpus.nvml_binding import Device

_PERCENT = 0.01


METRICS = {
    "smact": ("NVML_GPM_METRIC_SM_UTIL", _PERCENT),
    "smocc": ("NVML_GPM_METRIC_SM_OCCUPANCY", _PERCENT),
    "graphics": ("NVML_GPM_METRIC_GRAPHICS_UTIL", _PERCENT),
    "tensor": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", _PERCENT),
    "dram": ("NVML_GPM_METRIC_DRAM_BW_UTIL", _PERCENT),
    "pcie_tx_bytes_s": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", MIB),
    "pcie_rx_bytes_s": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", MIB),
    "nvlink_tx_bytes_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", MIB),
    "nvlink_rx_bytes_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", MIB),
}
"""Attribute -> name of NVML's metric, and its unit in RAD's units (percent, MiB/s)."""


class Gpm:
    """One GPU's samples: each reading covers the time since the previous one."""

    def __init__(self, nvml: Nvml, handle: Device) -> None:
        self._nvml = nvml
        self._handle = handle
        self._last = nvml.nvmlGpmSampleAlloc()
        self._next = nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, self._last)

    @classmethod
    def open(cls, nvml: Nvml, handle: Device) -> Gpm | None:
        """Return the samples of a GPU, the first one taken; None if the GPU has no GPM.

        Args:
            nvml: The binding.
            handle: The GPU's handle.

        Raises:
            NVMLError: The driver has none, or the GPU does not answer.
        """
        return cls(nvml, handle) if nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice else None

    def read(self) -> GpuActivity:
        """Return the activity since the last reading.

        Raises:
            NVMLError: The GPU does not answer; the next reading starts from the same sample.
        """
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._handle, self._next)
        question = nvml.c_nvmlGpmMetricsGet_t()
        question.version = nvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics = len(METRICS)
        question.sample1, question.sample2 = self._last, self._next
        for slot, (name, _) in zip(question.metrics, METRICS.values(), strict=False):
            slot.metricId = getattr(nvml, name)
        nvml.nvmlGpmMetricsGet(question)
        self._last, self._next = self._next, self._last
        measured = {
            attribute: slot.value * factor
            for slot, (attribute, (_, factor)) in zip(question.metrics, METRICS.items(), strict=False)
            if slot.nvmlReturn == nvml.NVML_SUCCESS
        }
        return GpuActivity(
            **{name: share(v) if METRICS[name][1] == _PERCENT else v for name, v in measured.items()}
        )

    def close(self) -> None:
        """Free the samples' memory."""
        for sample in (self._last, self._next):
            with suppress(self._nvml.NVMLError):  # the GPU is lost, and its samples with it
                self._nvml.nvmlGpmSampleFree(sample)
