"""NVML functions used by nvml.py and gpm.py, as one Protocol: the module pynvml fits it, and so does a fake.

Units and structures are in stubs/pynvml.pyi. A call of NVML that is not named here fails the type check, so that no
driver function is used without its differences between drivers having been checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeAlias, TypeVar, overload

if TYPE_CHECKING:
    import pynvml
    from pynvml import (
        c_nvmlEventData_t,
        c_nvmlFieldValue_t,
        c_nvmlGpmSupport_t,
        c_nvmlMemory_t,
        c_nvmlMemory_v2_t,
        c_nvmlUtilization_t,
        nvmlFriendlyObject,
    )

    Device: TypeAlias = pynvml.c_nvmlDevice_t
    Events: TypeAlias = pynvml.c_nvmlEventSet_t
    Sample: TypeAlias = pynvml.c_nvmlGpmSample_t
    MetricsGet: TypeAlias = pynvml.c_nvmlGpmMetricsGet_t

P = ParamSpec("P")
T = TypeVar("T")


class Nvml(Protocol):
    """NVML through its Python binding; every function raises NVMLError."""

    NVML_SUCCESS: int
    NVML_ERROR_NOT_SUPPORTED: int
    NVML_ERROR_FUNCTION_NOT_FOUND: int
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH: int
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int
    NVML_VOLATILE_ECC: int
    NVML_GPM_METRICS_GET_VERSION: int
    nvmlMemory_v2: int
    nvmlEventTypeXidCriticalError: int

    @property
    def NVMLError(self) -> type[pynvml.NVMLError]: ...
    @property
    def NVMLLibraryMismatchError(self) -> type[pynvml.NVMLLibraryMismatchError]: ...

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device: ...
    def nvmlDeviceGetUUID(self, handle: Device) -> str: ...
    def nvmlDeviceGetName(self, handle: Device) -> str: ...
    def nvmlDeviceGetMinorNumber(self, handle: Device) -> int: ...
    def nvmlDeviceGetMigMode(self, device: Device) -> list[int]: ...
    @overload
    def nvmlDeviceGetMemoryInfo(self, handle: Device, version: None = None) -> c_nvmlMemory_t: ...
    @overload
    def nvmlDeviceGetMemoryInfo(self, handle: Device, version: int) -> c_nvmlMemory_v2_t: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Device) -> list[nvmlFriendlyObject]: ...
    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: Device) -> list[nvmlFriendlyObject]: ...
    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: Device) -> list[nvmlFriendlyObject]: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Device) -> c_nvmlUtilization_t: ...
    def nvmlDeviceGetPowerUsage(self, handle: Device) -> int: ...
    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Device) -> int: ...
    def nvmlDeviceGetTotalEccErrors(self, handle: Device, errorType: int, counterType: int) -> int: ...
    def nvmlDeviceGetFieldValues(
        self, handle: Device, fieldIds: Sequence[int]
    ) -> Sequence[c_nvmlFieldValue_t]: ...
    def nvmlEventSetCreate(self) -> Events: ...
    def nvmlDeviceRegisterEvents(self, handle: Device, eventTypes: int, eventSet: Events) -> None: ...
    def nvmlEventSetWait(self, eventSet: Events, timeoutms: int) -> c_nvmlEventData_t: ...
    def nvmlGpmQueryDeviceSupport(self, device: Device) -> c_nvmlGpmSupport_t: ...
    def nvmlGpmSampleAlloc(self) -> Sample: ...
    def nvmlGpmSampleFree(self, gpmSample: Sample) -> None: ...
    def nvmlGpmSampleGet(self, device: Device, gpmSample: Sample) -> Sample: ...
    def c_nvmlGpmMetricsGet_t(self) -> MetricsGet: ...
    def nvmlGpmMetricsGet(self, metricsGet: MetricsGet) -> MetricsGet: ...


def query(nvml: Nvml, question: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
    """Return the driver's answer; None where this GPU or driver has none.

    Args:
        nvml: The binding.
        question: One of its functions.
        *arguments: For it.
        **named: For it.
    """
    try:
        return question(*arguments, **named)
    except nvml.NVMLError:
        return None


def decoded(text: str | bytes) -> str:
    """Return text; bindings before 11.515 gave bytes."""
    return text.decode() if isinstance(text, bytes) else text


def lacks(nvml: Nvml, error: Exception) -> bool:
    """Return whether an error means that the driver is too old for a function, not that the GPU fails.

    Args:
        nvml: The binding.
        error: The exception of one of its functions.
    """
    lacking = (
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    )
    return getattr(error, "value", None) in lacking
