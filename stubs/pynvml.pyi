"""The part of nvidia-ml-py that this project uses, with the units of NVML's own pages.

Source: https://docs.nvidia.com/deploy/nvml-api/ and the binding's signatures, which tests/unit/project/test_stubs.py
compares with the installed one. What is not used is not here, so that a new call is written down, with its units,
first.
"""

from collections.abc import Sequence
from ctypes import Structure, Union, _Pointer
from typing import Any, overload

class struct_c_nvmlDevice_t(Structure): ...
class struct_c_nvmlEventSet_t(Structure): ...
class struct_c_nvmlGpmSample_t(Structure): ...

class c_nvmlDevice_t(_Pointer[struct_c_nvmlDevice_t]):
    """A card, opaque."""

class c_nvmlEventSet_t(_Pointer[struct_c_nvmlEventSet_t]):
    """A set of events, opaque."""

class c_nvmlGpmSample_t(_Pointer[struct_c_nvmlGpmSample_t]):
    """The counters of one moment, opaque."""

class c_nvmlMemory_t(Structure):
    """Bytes; `used` holds the driver's reserve."""

    total: int
    free: int
    used: int

class c_nvmlMemory_v2_t(Structure):
    """Bytes; `used` is without `reserved`."""

    version: int
    total: int
    reserved: int
    free: int
    used: int

class c_nvmlUtilization_t(Structure):
    """Percent of the last sample period in which a kernel ran, and in which memory was read or written."""

    gpu: int
    memory: int

class c_nvmlValue_t(Union):
    """One value; the field's valueType says which member counts."""

    dVal: float
    uiVal: int
    ulVal: int
    ullVal: int
    sllVal: int

class c_nvmlFieldValue_t(Structure):
    """One field, with its own status (`nvmlReturn`)."""

    fieldId: int
    scopeId: int
    timestamp: int
    latencyUsec: int
    valueType: int
    nvmlReturn: int
    value: c_nvmlValue_t

class c_nvmlEventData_t(Structure):
    """One event; `eventData` of an Xid event is the Xid."""

    device: c_nvmlDevice_t
    eventType: int
    eventData: int
    gpuInstanceId: int
    computeInstanceId: int

class c_nvmlGpmSupport_t(Structure):
    """Whether a card has GPM."""

    version: int
    isSupportedDevice: int

class c_nvmlGpmMetric_t(Structure):
    """One metric: percent (0 to 100) or MiB/s, with its own status (`nvmlReturn`)."""

    metricId: int
    nvmlReturn: int
    value: float

class c_nvmlGpmMetricsGet_t(Structure):
    """A question about two samples."""

    version: int
    numMetrics: int
    sample1: c_nvmlGpmSample_t
    sample2: c_nvmlGpmSample_t
    metrics: Sequence[c_nvmlGpmMetric_t]

class nvmlFriendlyObject:
    """A process: its pid on the host, and its memory in bytes; None where the driver does not tell."""

    pid: int
    usedGpuMemory: int | None

    def __init__(self, dictionary: dict[str, Any]) -> None: ...

class NVMLError(Exception):
    """A call that failed; `value` is one of NVML_ERROR_*."""

    value: int

    def __new__(typ, value: int) -> NVMLError: ...

class NVMLLibraryMismatchError(Exception):
    """The driver lacks the version of a function that the binding takes by default."""

NVML_SUCCESS: int
NVML_ERROR_NOT_SUPPORTED: int
NVML_ERROR_FUNCTION_NOT_FOUND: int
NVML_ERROR_ARGUMENT_VERSION_MISMATCH: int
NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int
NVML_VOLATILE_ECC: int
NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: int
NVML_GPM_METRICS_GET_VERSION: int
NVML_GPM_METRIC_GRAPHICS_UTIL: int
NVML_GPM_METRIC_SM_UTIL: int
NVML_GPM_METRIC_SM_OCCUPANCY: int
NVML_GPM_METRIC_ANY_TENSOR_UTIL: int
NVML_GPM_METRIC_DRAM_BW_UTIL: int
NVML_GPM_METRIC_PCIE_TX_PER_SEC: int
NVML_GPM_METRIC_PCIE_RX_PER_SEC: int
NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: int
NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: int
nvmlMemory_v2: int
nvmlEventTypeXidCriticalError: int

def nvmlInit() -> None: ...
def nvmlShutdown() -> None: ...
def nvmlSystemGetDriverVersion() -> str: ...
def nvmlDeviceGetCount() -> int: ...
def nvmlDeviceGetHandleByIndex(index: int) -> c_nvmlDevice_t: ...
def nvmlDeviceGetUUID(handle: c_nvmlDevice_t) -> str: ...
def nvmlDeviceGetName(handle: c_nvmlDevice_t) -> str: ...
def nvmlDeviceGetMinorNumber(handle: c_nvmlDevice_t) -> int:
    """N of /dev/nvidiaN."""

def nvmlDeviceGetMigMode(device: c_nvmlDevice_t) -> list[int]:
    """Current and pending mode: 0 or 1."""

@overload
def nvmlDeviceGetMemoryInfo(handle: c_nvmlDevice_t, version: None = None) -> c_nvmlMemory_t: ...
@overload
def nvmlDeviceGetMemoryInfo(handle: c_nvmlDevice_t, version: int) -> c_nvmlMemory_v2_t: ...
def nvmlDeviceGetComputeRunningProcesses(handle: c_nvmlDevice_t) -> list[nvmlFriendlyObject]: ...
def nvmlDeviceGetComputeRunningProcesses_v2(handle: c_nvmlDevice_t) -> list[nvmlFriendlyObject]: ...
def nvmlDeviceGetMPSComputeRunningProcesses(handle: c_nvmlDevice_t) -> list[nvmlFriendlyObject]: ...
def nvmlDeviceGetUtilizationRates(handle: c_nvmlDevice_t) -> c_nvmlUtilization_t: ...
def nvmlDeviceGetPowerUsage(handle: c_nvmlDevice_t) -> int:
    """Milliwatts."""

def nvmlDeviceGetTotalEnergyConsumption(handle: c_nvmlDevice_t) -> int:
    """Millijoules since the driver was loaded."""

def nvmlDeviceGetTotalEccErrors(handle: c_nvmlDevice_t, errorType: int, counterType: int) -> int: ...
def nvmlDeviceGetFieldValues(
    handle: c_nvmlDevice_t, fieldIds: Sequence[int]
) -> Sequence[c_nvmlFieldValue_t]: ...
def nvmlEventSetCreate() -> c_nvmlEventSet_t: ...
def nvmlDeviceRegisterEvents(handle: c_nvmlDevice_t, eventTypes: int, eventSet: c_nvmlEventSet_t) -> None: ...
def nvmlEventSetWait(eventSet: c_nvmlEventSet_t, timeoutms: int) -> c_nvmlEventData_t:
    """Wait so many milliseconds for an event; NVML_ERROR_TIMEOUT if none comes."""

def nvmlGpmQueryDeviceSupport(device: c_nvmlDevice_t) -> c_nvmlGpmSupport_t: ...
def nvmlGpmSampleAlloc() -> c_nvmlGpmSample_t: ...
def nvmlGpmSampleFree(gpmSample: c_nvmlGpmSample_t) -> None: ...
def nvmlGpmSampleGet(device: c_nvmlDevice_t, gpmSample: c_nvmlGpmSample_t) -> c_nvmlGpmSample_t: ...
def nvmlGpmMetricsGet(metricsGet: c_nvmlGpmMetricsGet_t) -> c_nvmlGpmMetricsGet_t: ...
