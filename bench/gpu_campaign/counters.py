"""Read NVML's counters of one GPU over an interval: activity, power, energy, clocks, memory."""

from __future__ import annotations

import ctypes
import os
import statistics
import threading
import time
from multiprocessing import Pipe
from typing import Any

METRICS = {
    "graphics_pct": "NVML_GPM_METRIC_GRAPHICS_UTIL",
    "smact_pct": "NVML_GPM_METRIC_SM_UTIL",
    "smocc_pct": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "int_pct": "NVML_GPM_METRIC_INTEGER_UTIL",
    "tensor_pct": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "hmma_pct": "NVML_GPM_METRIC_HMMA_TENSOR_UTIL",
    "dram_pct": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "fp64_pct": "NVML_GPM_METRIC_FP64_UTIL",
    "fp32_pct": "NVML_GPM_METRIC_FP32_UTIL",
    "fp16_pct": "NVML_GPM_METRIC_FP16_UTIL",
    "pcie_tx_mib_s": "NVML_GPM_METRIC_PCIE_TX_PER_SEC",
    "pcie_rx_mib_s": "NVML_GPM_METRIC_PCIE_RX_PER_SEC",
}
CORE = ["smact_pct", "smocc_pct", "tensor_pct", "dram_pct"]
POWER_EVERY_S = 0.04


class Counters:
    """One GPU."""

    def __init__(self, index: int) -> None:
        import pynvml

        self.nvml = pynvml
        pynvml.nvmlInit()
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        self.uuid: str = pynvml.nvmlDeviceGetUUID(self.handle)
        self.metrics = {
            name: getattr(pynvml, metric) for name, metric in METRICS.items() if hasattr(pynvml, metric)
        }

    def describe(self) -> dict[str, Any]:
        """Return name, driver and memory, for the record."""
        memory = self.nvml.nvmlDeviceGetMemoryInfo(self.handle, version=self.nvml.nvmlMemory_v2)
        return {
            "gpu": self.nvml.nvmlDeviceGetName(self.handle),
            "driver": self.nvml.nvmlSystemGetDriverVersion(),
            "memory_total_bytes": memory.total,
            "memory_reserved_by_driver_bytes": memory.reserved,
            "power_limit_w": self._try(lambda: self.nvml.nvmlDeviceGetEnforcedPowerLimit(self.handle) / 1000),
        }

    def _try(self, ask: Any) -> Any:
        try:
            return ask()
        except self.nvml.NVMLError:
            return None

    def begin(self) -> None:
        """Take the first sample."""
        nvml = self.nvml
        self.watts: list[float] = []
        self.clocks: list[int] = []
        self.running = True
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.energy = self._try(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle))
        self.first = nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(self.handle, self.first)
        self.at = time.monotonic()
        self.thread.start()

    def _watch(self) -> None:
        nvml = self.nvml
        while self.running:
            watts = self._try(self._instant_power)
            if watts is not None:
                self.watts.append(watts)
            clock = self._try(lambda: nvml.nvmlDeviceGetClockInfo(self.handle, nvml.NVML_CLOCK_SM))
            if clock is not None:
                self.clocks.append(clock)
            time.sleep(POWER_EVERY_S)

    def _instant_power(self) -> float:
        nvml = self.nvml
        value = nvml.nvmlDeviceGetFieldValues(self.handle, [nvml.NVML_FI_DEV_POWER_INSTANT])[0]
        if value.nvmlReturn != 0:
            return float(nvml.nvmlDeviceGetPowerUsage(self.handle)) / 1000
        return float(value.value.uiVal) / 1000

    def end(self) -> dict[str, Any]:
        """Return everything since begin()."""
        nvml = self.nvml
        second = nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(self.handle, second)
        window_s = time.monotonic() - self.at
        energy = self._try(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle))
        self.running = False
        found: dict[str, Any] = {"window_s": round(window_s, 4)}
        for names in (list(self.metrics), CORE):
            question = nvml.c_nvmlGpmMetricsGet_t()
            question.version = nvml.NVML_GPM_METRICS_GET_VERSION
            question.sample1, question.sample2 = self.first, second
            question.numMetrics = len(names)
            for place, name in enumerate(names):
                question.metrics[place].metricId = self.metrics[name]
            try:
                nvml.nvmlGpmMetricsGet(question)
            except nvml.NVMLError:
                continue
            for place, name in enumerate(names):
                slot = question.metrics[place]
                found[name] = round(slot.value, 3) if slot.nvmlReturn == 0 else None
            break
        nvml.nvmlGpmSampleFree(self.first)
        nvml.nvmlGpmSampleFree(second)
        self.thread.join()
        joules = None if energy is None or self.energy is None else (energy - self.energy) / 1000
        found["energy_j"] = joules
        found["power_w"] = round(statistics.fmean(self.watts), 1) if self.watts else None
        found["sm_clock_mhz"] = round(statistics.fmean(self.clocks)) if self.clocks else None
        found["temperature_c"] = self._try(
            lambda: nvml.nvmlDeviceGetTemperature(self.handle, nvml.NVML_TEMPERATURE_GPU)
        )
        return found

    def processes(self) -> dict[int, int]:
        """Return the bytes that each process holds."""
        rows = self._try(lambda: self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)) or []
        return {row.pid: row.usedGpuMemory for row in rows if row.usedGpuMemory is not None}

    def used_bytes(self) -> int:
        """Return what is used of the GPU, without the driver's reserve."""
        memory = self.nvml.nvmlDeviceGetMemoryInfo(self.handle, version=self.nvml.nvmlMemory_v2)
        return int(memory.used)


def gpus() -> int:
    """Return how many GPUs there are, asked in a process of its own: NVML is not carried over a fork."""
    pid = os.fork()
    if pid == 0:
        try:
            import pynvml

            pynvml.nvmlInit()
            os._exit(pynvml.nvmlDeviceGetCount())
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Meter:
    """Counters of one GPU in a process of their own, forked before anything has touched the driver."""

    def __init__(self, index: int) -> None:
        self.pipe, other = Pipe()
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(1, 9)
            self.pipe.close()
            _serve(index, other)
        other.close()
        self.uuid: str = self._ask("uuid")

    def _ask(self, what: str) -> Any:
        self.pipe.send(what)
        if not self.pipe.poll(20):
            raise RuntimeError(f"no answer to {what} from NVML")
        good, answer = self.pipe.recv()
        if not good:
            raise RuntimeError(answer)
        return answer

    def __getattr__(self, name: str) -> Any:
        return lambda: self._ask(name)


def _serve(index: int, pipe: Any) -> None:
    try:
        counters: Any = None
        while True:
            what = pipe.recv()
            try:
                counters = counters or Counters(index)
                found = getattr(counters, what)
                pipe.send((True, found if what == "uuid" else found()))
            except Exception as exc:  # noqa: BLE001 - passed to the caller
                pipe.send((False, repr(exc)))
    finally:
        os._exit(0)


class FakeCounters:
    """A GPU that is not there, for the dry run."""

    uuid = "GPU-dry"

    def describe(self) -> dict[str, Any]:
        """Return what it is."""
        return {"gpu": "none (dry run)", "driver": "none"}

    def begin(self) -> None:
        """Start."""
        self.at = time.monotonic()

    def end(self) -> dict[str, Any]:
        """Return a window without counters."""
        return {
            "window_s": round(time.monotonic() - self.at, 4),
            "smact_pct": 50.0,
            "energy_j": 1.0,
            "power_w": 1.0,
        }

    def processes(self) -> dict[int, int]:
        """Return nothing."""
        return {}

    def used_bytes(self) -> int:
        """Return nothing."""
        return 0
