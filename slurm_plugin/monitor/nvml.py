"""GPUs through NVML: the only place that meets pynvml (the distribution nvidia-ml-py).

What differs between cards, drivers and settings, what is done about it, and who says so (one test for each row):

| what | where | then | source |
|---|---|---|---|
| memory v2, the driver's reserve apart | driver 510 on | before: v1, reserve within used | [1], [2] |
| memory v2 is not found | driver 510.39 | v1 | [3] |
| process list v3 | drivers 510 to 535.97 | elsewhere v2, told by a mismatch error | [4] |
| process list v3 with longer rows | drivers 535.43 to 535.86 | rows with no possible pid are dropped | [4], [5] |
| memory of a process | "not available" in some settings | memory_bytes None | [1] processes |
| which processes are clients of MPS | drivers and bindings from 510 on | mps None | [1] processes |
| GPM: SMACT, SMOCC, tensor, DRAM, traffic | Hopper on | DCGM (dcgm.py), else utilisation, flagged | [1] GPM |
| GPM of a card with MIG on | only per instance | activity None: such a card is never shared | [1] GPM |
| one GPM metric | may fail alone | that figure None | [1] GPM |
| minor number | not under WSL or some virtual GPUs | NVML's index | [6] |
| MIG mode | Ampere and later data-centre cards | "not supported" means off | [1] MIG |
| energy | Volta on | None | [1] queries |
| ECC | not on consumer cards, or switched off | None | [1] queries |
| recovery action: reset or reboot needed | newer drivers and bindings | judged by the last Xid | [7] |
| Xid events | not everywhere | None | [1] events, [8] |
| a card that is lost or needs a reset | fails calls | unhealthy while its UUID is known | [1] errors |
| after such a failure | the driver is opened anew | a card that was reset comes back | [1] init |
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

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from slurm_plugin.core.clock import Clock, SystemClock
from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.gpu import GpuCounters, GpuProcess, GpuReading, Source
from slurm_plugin.monitor.gpm import Gpm
from slurm_plugin.monitor.nvml_binding import Nvml
from slurm_plugin.monitor.telemetry import Activity, share

if TYPE_CHECKING:
    from slurm_plugin.monitor.nvml_binding import Device, Events

FIRST_SAMPLES_APART_S = 0.1
"""GPM tells what happened between two samples; the first reading takes both."""

FATAL_XIDS = frozenset({48, 64, 79, 95, 119, 120, 140})
"""Xids after which a card needs a reset: uncorrectable ECC, failed row remap, off the bus, uncontained ECC, GSP."""

_NO_PIDS = frozenset({0, (1 << 32) - 1})
"""What stands in place of a pid where driver and binding disagree on the length of a row."""

_MILLI = 1e-3  # NVML counts milliwatts and millijoules
_PERCENT = 0.01

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class _Card:
    """What is asked once of a card, and what the next reading needs of the last."""

    handle: Device
    uuid: str
    index: int
    name: str
    gpm: Gpm | None
    xid: int | None = None


class NvmlTelemetry:
    """Readings through NVML; the driver is met at the first reading, and stays open until `close`."""

    def __init__(self, library: Nvml | None = None, *, clock: Clock | None = None) -> None:
        """Prepare; nothing is loaded yet.

        Args:
            library: The module pynvml or a stand-in; None imports it when it is needed.
            clock: Time.
        """
        self._library = library
        self._clock = clock or SystemClock()
        self._cards: list[_Card] | None = None
        self._events: Events | None = None

    @property
    def _nvml(self) -> Nvml:
        """The binding, imported when it is first needed.

        Raises:
            DeviceError: It is not installed.
        """
        if self._library is None:
            try:
                import pynvml
            except ImportError as exc:
                raise DeviceError("nvidia-ml-py is not installed; run: pip install nvidia-ml-py") from exc
            self._library = pynvml
        return self._library

    def read(self) -> tuple[GpuReading, ...]:
        """Return a reading of every GPU, ordered by index.

        Raises:
            DeviceError: There is no driver, or it failed as a whole.
        """
        if self._cards is None:
            self._cards = self._open()
            self._clock.sleep(FIRST_SAMPLES_APART_S)
        self._hear_xids()
        readings = [self._reading(card) for card in self._cards]
        if any(reading.memory_total_bytes == 0 for reading in readings):
            self.close()
        return tuple(sorted(readings, key=lambda reading: reading.index))

    def close(self) -> None:
        """Let go of the driver; the next reading opens it again."""
        for card in self._cards or []:
            if card.gpm is not None:
                card.gpm.close()
        if self._cards is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
        self._cards, self._events = None, None

    def driver_version(self) -> str:
        """Return the driver's version, e.g. "580.159.04".

        Raises:
            DeviceError: There is no driver.
        """
        if self._cards is None:
            self._cards = self._open()
        with self._translated("driver version"):
            return _decoded(self._nvml.nvmlSystemGetDriverVersion())

    def _open(self) -> list[_Card]:
        nvml = self._nvml
        with self._translated("NVML"):
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
        self._events = self._asked(nvml.nvmlEventSetCreate)
        cards = []
        for number in range(count):
            with contextlib.suppress(nvml.NVMLError):  # lost before we knew its name
                cards.append(self._card(nvml.nvmlDeviceGetHandleByIndex(number), number))
        return cards

    def _card(self, handle: Device, number: int) -> _Card:
        nvml = self._nvml
        minor = self._asked(nvml.nvmlDeviceGetMinorNumber, handle)
        if self._events is not None:
            self._asked(
                nvml.nvmlDeviceRegisterEvents, handle, nvml.nvmlEventTypeXidCriticalError, self._events
            )
        return _Card(
            handle=handle,
            uuid=_decoded(nvml.nvmlDeviceGetUUID(handle)),
            index=number if minor is None else minor,
            name=_decoded(nvml.nvmlDeviceGetName(handle)),
            gpm=self._asked(Gpm.open, nvml, handle),
        )

    def _reading(self, card: _Card) -> GpuReading:
        """Return one card's reading; a card that does not answer is unhealthy and shows no free memory."""
        now_s = self._clock.now_s()
        try:
            total, used, reserved = self._memory(card.handle)
            processes = self._processes(card.handle)
        except self._nvml.NVMLError:
            return GpuReading(
                uuid=card.uuid,
                index=card.index,
                name=card.name,
                memory_total_bytes=0,
                memory_used_bytes=0,
                healthy=False,
                time_s=now_s,
                counters=GpuCounters(xid=card.xid),
            )
        mig = self._mig(card.handle)
        activity, source = (Activity(), None) if mig else self._activity(card)
        return GpuReading(
            uuid=card.uuid,
            index=card.index,
            name=card.name,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_reserved_bytes=reserved,
            smact=activity.smact,
            smact_source=source,
            processes=processes,
            mig=mig,
            healthy=self._healthy(card),
            time_s=now_s,
            counters=self._counters(card, activity),
        )

    def _memory(self, handle: Device) -> tuple[int, int, int | None]:
        nvml = self._nvml
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
            return int(memory.total), int(memory.used), int(memory.reserved)
        except nvml.NVMLError as exc:
            if not _lacks(nvml, exc):
                raise
        older = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(older.total), int(older.used), None

    def _processes(self, handle: Device) -> tuple[GpuProcess, ...]:
        nvml = self._nvml
        try:
            rows = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLLibraryMismatchError:
            rows = nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
        through_mps = self._mps_clients(handle)
        return tuple(
            GpuProcess(
                pid=int(row.pid),
                memory_bytes=row.usedGpuMemory,
                mps=None if through_mps is None else int(row.pid) in through_mps,
            )
            for row in rows
            if row.pid not in _NO_PIDS
        )

    def _mps_clients(self, handle: Device) -> frozenset[int] | None:
        """Return the clients of any MPS server on a card; None where the driver does not tell."""
        nvml = self._nvml
        try:
            return frozenset(int(row.pid) for row in nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle))
        except (nvml.NVMLError, nvml.NVMLLibraryMismatchError, AttributeError):
            return None

    def _mig(self, handle: Device) -> bool:
        modes = self._asked(self._nvml.nvmlDeviceGetMigMode, handle)
        return modes is not None and bool(modes[0])

    def _activity(self, card: _Card) -> tuple[Activity, Source | None]:
        if card.gpm is not None:
            activity = self._asked(card.gpm.read)
            if activity is not None:
                return activity, None if activity.smact is None else "nvml-gpm"
        rates = self._asked(self._nvml.nvmlDeviceGetUtilizationRates, card.handle)
        if rates is None:
            return Activity(), None
        busy = share(rates.gpu * _PERCENT)
        return Activity(smact=busy, graphics=busy), None if busy is None else "nvml-utilisation"

    def _counters(self, card: _Card, activity: Activity) -> GpuCounters:
        nvml = self._nvml
        power_mw = self._asked(nvml.nvmlDeviceGetPowerUsage, card.handle)
        energy_mj = self._asked(nvml.nvmlDeviceGetTotalEnergyConsumption, card.handle)
        ecc = self._asked(
            nvml.nvmlDeviceGetTotalEccErrors,
            card.handle,
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
            xid=card.xid,
        )

    def _healthy(self, card: _Card) -> bool:
        nvml = self._nvml
        field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
        values = None if field is None else self._asked(nvml.nvmlDeviceGetFieldValues, card.handle, [field])
        if values and values[0].nvmlReturn == nvml.NVML_SUCCESS:
            return not values[0].value.uiVal  # NVML_GPU_RECOVERY_ACTION_NONE is 0
        return card.xid not in FATAL_XIDS

    def _hear_xids(self) -> None:
        """Note the Xids since the last reading; a timeout says that there are no more."""
        while self._events is not None:
            event = self._asked(self._nvml.nvmlEventSetWait, self._events, 0)
            if event is None:
                return
            uuid = self._asked(self._nvml.nvmlDeviceGetUUID, event.device)
            for card in self._cards or []:
                if uuid is not None and card.uuid == _decoded(uuid):
                    card.xid = int(event.eventData)

    def _asked(self, question: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
        """Return the driver's answer; None where this card or driver has none."""
        try:
            return question(*arguments, **named)
        except self._nvml.NVMLError:
            return None

    @contextmanager
    def _translated(self, subject: str) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as exc:
            raise DeviceError(f"{subject}: {exc}; is the NVIDIA driver loaded? run: nvidia-smi") from exc


def _lacks(nvml: Nvml, error: Exception) -> bool:
    """Return whether an error means that the driver is too old for a function, rather than that the card fails."""
    lacking = (
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    )
    return getattr(error, "value", None) in lacking


def _decoded(text: str | bytes) -> str:
    """Return text; bindings before 11.515 gave bytes."""
    return text.decode() if isinstance(text, bytes) else text
