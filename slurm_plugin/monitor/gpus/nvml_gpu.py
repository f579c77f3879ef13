"""Reading of one GPU through NVML.

Differences between GPUs, drivers and settings, how each is handled, and its source (one test for each row):

| what | where | then | source |
|---|---|---|---|
| memory v2, the driver's reserve apart | driver 510 on | before: v1, reserve within used | [1], [2] |
| memory v2 is not found | driver 510.39 | v1 | [3] |
| process list v3 | drivers 510 to 535.97 | elsewhere v2, detected by a mismatch error | [4] |
| process list v3 with longer rows | drivers 535.43 to 535.86 | rows with no possible pid are dropped | [4], [5] |
| memory of a process | "not available" in some settings | memory_bytes None | [1] processes |
| which processes are clients of MPS | drivers and bindings from 510 on | mps None | [1] processes |
| GPM: SMACT, SMOCC, tensor, DRAM, traffic | Hopper on | DCGM (dcgm.py), else utilisation, flagged | [1] GPM |
| GPM of a GPU with MIG on | only per instance | activity None: such a GPU is never shared | [1] GPM |
| one GPM metric | may fail alone | that figure None | [1] GPM |
| minor number | not under WSL or some virtual GPUs | NVML's index | [6] |
| MIG mode | Ampere and later data-centre GPUs | "not supported" means off | [1] MIG |
| energy | Volta on | None | [1] queries |
| ECC | not on consumer GPUs, or switched off | None | [1] queries |
| recovery action: reset or reboot needed | newer drivers and bindings | judged by Xids | [7] |
| Xid events | not everywhere | None | [1] events, [8] |
| a GPU that is lost or needs a reset | fails calls | unhealthy while its UUID is known | [1] errors |
| after such a failure | the driver is reopened (nvml.py) | a GPU that was reset comes back | [1] init |
| names | bindings before 11.515 give bytes | decoded | the binding |

[1] https://docs.nvidia.com/deploy/nvml-api/ ("Device Queries", "GPM Functions", "Event Handling Methods", ...)
[2] https://github.com/wookayin/gpustat/issues/141, https://github.com/Cldfire/nvml-wrapper/issues/57
[3] https://github.com/NVIDIA/nvidia-settings/issues/78
[4] https://github.com/XuehaiPan/nvitop/pull/89, which names the releases; the binding 12.535.77 has the longer rows too
[5] https://github.com/wookayin/gpustat/issues/161
[6] https://github.com/NVIDIA/k8s-device-plugin/issues/332
[7] https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html
[8] https://docs.nvidia.com/deploy/xid-errors/

580.159 on an H200 was tried; the other rows follow their sources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from slurm_plugin.core.records.gpu import GpuCounters, GpuProcess, GpuReading, Source
from slurm_plugin.monitor.gpus.gpm import Gpm
from slurm_plugin.monitor.gpus.nvml_binding import Nvml, decoded, lacks, query
from slurm_plugin.monitor.gpus.telemetry import GpuActivity, share

if TYPE_CHECKING:
    from slurm_plugin.monitor.gpus.nvml_binding import Device, Events

FATAL_XIDS = frozenset({48, 64, 79, 95, 119, 120, 140})
"""Xids after which a GPU needs a reset: uncorrectable ECC, failed row remap, off the bus, uncontained ECC, GSP."""

_NO_PIDS = frozenset({0, (1 << 32) - 1})
"""Values in place of a pid where driver and binding disagree on the length of a row."""

_MILLI = 1e-3  # NVML counts milliwatts and millijoules
_PERCENT = 0.01

P = ParamSpec("P")
T = TypeVar("T")


class NvmlGpu:
    """One GPU, and what its next reading needs from the last.

    Attributes:
        uuid: Its permanent name, "GPU-...".
        index: Number of its device file.
        name: Product name.
        gpm: Samples of its activity; None if it has none.
        xid: Its last Xid; None if there was none.
    """

    def __init__(self, nvml: Nvml, handle: Device, number: int) -> None:
        """Query what never changes.

        Args:
            nvml: The binding.
            handle: The GPU's handle.
            number: NVML's index of it.

        Raises:
            NVMLError: The GPU does not answer.
        """
        self._nvml = nvml
        self._handle = handle
        minor = query(nvml, nvml.nvmlDeviceGetMinorNumber, handle)
        self.index = number if minor is None else minor
        self.uuid = decoded(nvml.nvmlDeviceGetUUID(handle))
        self.name = decoded(nvml.nvmlDeviceGetName(handle))
        self.gpm: Gpm | None = self._query(Gpm.open, nvml, handle)
        self.xid: int | None = None
        self._needs_reset = False

    def heard(self, xid: int) -> None:
        """Record an Xid; none that follows one which needs a reset undoes that, such as 45 for each process."""
        self.xid = xid
        self._needs_reset = self._needs_reset or xid in FATAL_XIDS

    def listen(self, events: Events) -> None:
        """Register the GPU's Xids with a set of events, if it can."""
        nvml = self._nvml
        self._query(nvml.nvmlDeviceRegisterEvents, self._handle, nvml.nvmlEventTypeXidCriticalError, events)

    def reading(self, now_s: float) -> GpuReading:
        """Return a reading; a GPU that does not answer is unhealthy and shows no free memory.

        Args:
            now_s: The time, in seconds.
        """
        try:
            total, used, reserved = self._memory()
            processes = self._processes()
        except self._nvml.NVMLError:
            return GpuReading(
                uuid=self.uuid,
                index=self.index,
                name=self.name,
                memory_total_bytes=0,
                memory_used_bytes=0,
                healthy=False,
                time_s=now_s,
                counters=GpuCounters(xid=self.xid),
            )
        mig = self._mig()
        activity, source = (GpuActivity(), None) if mig else self._activity()
        return GpuReading(
            uuid=self.uuid,
            index=self.index,
            name=self.name,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_reserved_bytes=reserved,
            smact=activity.smact,
            smact_source=source,
            processes=processes,
            mig=mig,
            healthy=self._healthy(),
            time_s=now_s,
            counters=self._counters(activity),
        )

    def _memory(self) -> tuple[int, int, int | None]:
        nvml = self._nvml
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(self._handle, nvml.nvmlMemory_v2)
            return int(memory.total), int(memory.used), int(memory.reserved)
        except nvml.NVMLError as exc:
            if not lacks(nvml, exc):
                raise
        older = nvml.nvmlDeviceGetMemoryInfo(self._handle)
        return int(older.total), int(older.used), None

    def _processes(self) -> tuple[GpuProcess, ...]:
        nvml = self._nvml
        try:
            rows = nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except nvml.NVMLLibraryMismatchError:
            rows = nvml.nvmlDeviceGetComputeRunningProcesses_v2(self._handle)
        through_mps = self._mps_clients()
        return tuple(
            GpuProcess(
                pid=int(row.pid),
                memory_bytes=row.usedGpuMemory,
                mps=None if through_mps is None else int(row.pid) in through_mps,
            )
            for row in rows
            if row.pid not in _NO_PIDS
        )

    def _mps_clients(self) -> frozenset[int] | None:
        """Return the clients of any MPS server on a GPU; None where the driver does not report them."""
        nvml = self._nvml
        try:
            return frozenset(
                int(row.pid) for row in nvml.nvmlDeviceGetMPSComputeRunningProcesses(self._handle)
            )
        except (nvml.NVMLError, nvml.NVMLLibraryMismatchError, AttributeError):
            return None

    def _mig(self) -> bool:
        modes = self._query(self._nvml.nvmlDeviceGetMigMode, self._handle)
        return modes is not None and bool(modes[0])

    def _activity(self) -> tuple[GpuActivity, Source | None]:
        if self.gpm is not None:
            activity = self._query(self.gpm.read)
            if activity is not None:
                return activity, None if activity.smact is None else "nvml-gpm"
        rates = self._query(self._nvml.nvmlDeviceGetUtilizationRates, self._handle)
        if rates is None:
            return GpuActivity(), None
        busy = share(rates.gpu * _PERCENT)
        return GpuActivity(smact=busy, graphics=busy), None if busy is None else "nvml-utilisation"

    def _counters(self, activity: GpuActivity) -> GpuCounters:
        nvml = self._nvml
        power_mw = self._query(nvml.nvmlDeviceGetPowerUsage, self._handle)
        energy_mj = self._query(nvml.nvmlDeviceGetTotalEnergyConsumption, self._handle)
        ecc = self._query(
            nvml.nvmlDeviceGetTotalEccErrors,
            self._handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        )
        return GpuCounters(
            graphics=activity.graphics,
            smocc=activity.smocc,
            tensor=activity.tensor,
            dram=activity.dram,
            pcie_tx_bytes_s=activity.pcie_tx_bytes_s,
            pcie_rx_bytes_s=activity.pcie_rx_bytes_s,
            nvlink_tx_bytes_s=activity.nvlink_tx_bytes_s,
            nvlink_rx_bytes_s=activity.nvlink_rx_bytes_s,
            power_w=None if power_mw is None else power_mw * _MILLI,
            energy_j=None if energy_mj is None else energy_mj * _MILLI,
            ecc_uncorrected=ecc,
            xid=self.xid,
        )

    def _healthy(self) -> bool:
        nvml = self._nvml
        field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
        values = None if field is None else self._query(nvml.nvmlDeviceGetFieldValues, self._handle, [field])
        if values and values[0].nvmlReturn == nvml.NVML_SUCCESS:
            return not values[0].value.uiVal  # NVML_GPU_RECOVERY_ACTION_NONE is 0
        return not self._needs_reset

    def _query(self, question: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
        return query(self._nvml, question, *arguments, **named)
