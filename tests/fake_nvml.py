"""A driver as pynvml shows it, with one switch for each difference that monitor/gpus/nvml_gpu.py knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

GIB = 2**30
MIB = 2**20


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class NVMLLibraryMismatchError(Exception):
    pass


@dataclass
class FakeGpu:
    uuid: str = "GPU-a"
    minor: int | None = 0
    name: str | bytes = "NVIDIA H200"
    total: int = 140 * GIB
    used: int = 10 * GIB
    reserved: int = 615 * MIB
    processes: tuple[tuple[int, int | None], ...] = ()
    mps: tuple[int, ...] | None = ()
    gpm: dict[int, float] | None = field(
        default_factory=lambda: {1: 100.0, 2: 12.5, 3: 4.0, 5: 1.0, 10: 2.0, 20: 3.0}
    )
    gpm_fails: frozenset[int] = frozenset()
    utilisation: int | None = 100
    mig: int | None = 0
    energy_mj: int | None = 5000
    ecc: int | None = 0
    recovery: int | None = 0
    lost_at_open: bool = False
    lost: bool = False
    xids: list[int] = field(default_factory=list)


class FakeNvml:
    """The module pynvml, as far as it is used; every method is named as there."""

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    NVML_SUCCESS = 0
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_TIMEOUT = 10
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_GRAPHICS_UTIL = 1
    NVML_GPM_METRIC_SM_UTIL = 2
    NVML_GPM_METRIC_SM_OCCUPANCY = 3
    NVML_GPM_METRIC_ANY_TENSOR_UTIL = 5
    NVML_GPM_METRIC_DRAM_BW_UTIL = 10
    NVML_GPM_METRIC_PCIE_TX_PER_SEC = 20
    NVML_GPM_METRIC_PCIE_RX_PER_SEC = 21
    NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC = 60
    NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC = 61
    nvmlMemory_v2 = 2
    nvmlEventTypeXidCriticalError = 8

    def __init__(
        self,
        *physical_gpus: FakeGpu,
        driver: bool = True,
        memory_v2: bool = True,
        processes_v3: bool = True,
        events: bool = True,
    ) -> None:
        self.physical_gpus = list(physical_gpus)
        self.driver, self.memory_v2, self.processes_v3, self.events = driver, memory_v2, processes_v3, events
        self.opened = 0
        self.samples = 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError(self.NVML_ERROR_DRIVER_NOT_LOADED)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.physical_gpus)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> FakeGpu:
        if self.physical_gpus[number].lost_at_open:
            raise NVMLError(self.NVML_ERROR_GPU_IS_LOST)
        return self.physical_gpus[number]

    def nvmlDeviceGetUUID(self, physical_gpu: FakeGpu) -> str:
        return physical_gpu.uuid

    def nvmlDeviceGetName(self, physical_gpu: FakeGpu) -> str | bytes:
        return physical_gpu.name

    def nvmlDeviceGetMinorNumber(self, physical_gpu: FakeGpu) -> int:
        return self._or_unsupported(physical_gpu.minor)

    def nvmlDeviceGetMigMode(self, physical_gpu: FakeGpu) -> list[int]:
        return [self._or_unsupported(physical_gpu.mig), 0]

    def nvmlDeviceGetMemoryInfo(self, physical_gpu: FakeGpu, version: int | None = None) -> Any:
        if physical_gpu.lost:
            raise NVMLError(self.NVML_ERROR_GPU_IS_LOST)
        if version is None:
            return SimpleNamespace(total=physical_gpu.total, used=physical_gpu.used + physical_gpu.reserved)
        if not self.memory_v2:
            raise NVMLError(self.NVML_ERROR_FUNCTION_NOT_FOUND)
        return SimpleNamespace(
            total=physical_gpu.total, used=physical_gpu.used, reserved=physical_gpu.reserved
        )

    def nvmlDeviceGetComputeRunningProcesses(self, physical_gpu: FakeGpu) -> list[Any]:
        if not self.processes_v3:
            raise NVMLLibraryMismatchError("use nvmlDeviceGetComputeRunningProcesses_v2")
        return self.nvmlDeviceGetComputeRunningProcesses_v2(physical_gpu)

    def nvmlDeviceGetComputeRunningProcesses_v2(self, physical_gpu: FakeGpu) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in physical_gpu.processes]

    def nvmlDeviceGetMPSComputeRunningProcesses(self, physical_gpu: FakeGpu) -> list[Any]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in self._or_unsupported(physical_gpu.mps)
        ]

    def nvmlDeviceGetUtilizationRates(self, physical_gpu: FakeGpu) -> Any:
        return SimpleNamespace(gpu=self._or_unsupported(physical_gpu.utilisation))

    def nvmlDeviceGetPowerUsage(self, physical_gpu: FakeGpu) -> int:
        return 250_000

    def nvmlDeviceGetTotalEnergyConsumption(self, physical_gpu: FakeGpu) -> int:
        return self._or_unsupported(physical_gpu.energy_mj)

    def nvmlDeviceGetTotalEccErrors(self, physical_gpu: FakeGpu, kind: int, counter: int) -> int:
        return self._or_unsupported(physical_gpu.ecc)

    def nvmlDeviceGetFieldValues(self, physical_gpu: FakeGpu, fields: list[int]) -> list[Any]:
        code = 0 if physical_gpu.recovery is not None else self.NVML_ERROR_NOT_SUPPORTED
        return [SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=physical_gpu.recovery or 0))]

    def nvmlEventSetCreate(self) -> object:
        return self._or_unsupported(object() if self.events else None)

    def nvmlDeviceRegisterEvents(self, physical_gpu: FakeGpu, kinds: int, events: object) -> None:
        pass

    def nvmlEventSetWait(self, events: object, timeout_ms: int) -> Any:
        for physical_gpu in self.physical_gpus:
            if physical_gpu.xids:
                return SimpleNamespace(device=physical_gpu, eventData=physical_gpu.xids.pop(0))
        raise NVMLError(self.NVML_ERROR_TIMEOUT)

    def nvmlGpmQueryDeviceSupport(self, physical_gpu: FakeGpu) -> Any:
        return SimpleNamespace(isSupportedDevice=int(physical_gpu.gpm is not None))

    def nvmlGpmSampleAlloc(self) -> Any:
        self.samples += 1
        return SimpleNamespace(physical_gpu=None)

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self.samples -= 1

    def nvmlGpmSampleGet(self, physical_gpu: FakeGpu, sample: Any) -> None:
        sample.physical_gpu = physical_gpu

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        slots = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(40)]
        return SimpleNamespace(version=0, numMetrics=0, sample1=None, sample2=None, metrics=slots)

    def nvmlGpmMetricsGet(self, question: Any) -> None:
        assert question.sample1 is not question.sample2
        physical_gpu = question.sample2.physical_gpu
        for slot in question.metrics[: question.numMetrics]:
            slot.nvmlReturn = int(slot.metricId in physical_gpu.gpm_fails)
            slot.value = physical_gpu.gpm.get(slot.metricId, 0.0)

    def _or_unsupported(self, value: Any) -> Any:
        if value is None:
            raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return value
