"""Read the GPU and its processes with NVML, from outside the training process."""

from __future__ import annotations

from typing import Any

import pynvml


class Device:
    """The machine's first GPU."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        self._before: Any = None

    def describe(self) -> dict[str, Any]:
        """Return name, driver and memory sizes, for the record."""
        memory = pynvml.nvmlDeviceGetMemoryInfo(self._handle, version=pynvml.nvmlMemory_v2)
        return {
            "gpu": pynvml.nvmlDeviceGetName(self._handle),
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "memory_total_bytes": memory.total,
            "memory_reserved_by_driver_bytes": memory.reserved,
        }

    def usable_bytes(self) -> int:
        """Return total memory minus the driver's reserve."""
        memory = pynvml.nvmlDeviceGetMemoryInfo(self._handle, version=pynvml.nvmlMemory_v2)
        return int(memory.total - memory.reserved)

    def processes(self) -> dict[int, int]:
        """Return the bytes of each process, as in nvidia-smi."""
        rows = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return {row.pid: row.usedGpuMemory for row in rows if row.usedGpuMemory is not None}

    def begin_activity(self) -> None:
        """Take the first of two samples of the activity counters."""
        self._before = self._sample()

    def end_activity(self) -> dict[str, float | None]:
        """Return SM activity, SM occupancy, tensor and DRAM activity since the first sample, in percent."""
        get = pynvml.c_nvmlGpmMetricsGet_t()
        get.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        get.sample1, get.sample2 = self._before, self._sample()
        names = {
            "smact_pct": pynvml.NVML_GPM_METRIC_SM_UTIL,
            "smocc_pct": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
            "tensor_pct": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
            "dram_pct": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
        }
        get.numMetrics = len(names)
        for place, metric in enumerate(names.values()):
            get.metrics[place].metricId = metric
        pynvml.nvmlGpmMetricsGet(get)
        values = {
            name: round(get.metrics[place].value, 3) if get.metrics[place].nvmlReturn == 0 else None
            for place, name in enumerate(names)
        }
        pynvml.nvmlGpmSampleFree(get.sample1)
        pynvml.nvmlGpmSampleFree(get.sample2)
        return values

    def _sample(self) -> Any:
        sample = pynvml.nvmlGpmSampleAlloc()
        pynvml.nvmlGpmSampleGet(self._handle, sample)
        return sample
