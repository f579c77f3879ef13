"""GPUs through NVML: open and reopen the driver. The only place that imports pynvml (distribution nvidia-ml-py).

nvml_gpu.py reads one GPU, and handles the differences between GPUs, drivers and settings.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from slurm_plugin.core.clock import Clock, SystemClock
from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.gpus.nvml_binding import Nvml, decoded, query
from slurm_plugin.monitor.gpus.nvml_gpu import NvmlGpu

if TYPE_CHECKING:
    from slurm_plugin.monitor.gpus.nvml_binding import Events

FIRST_SAMPLES_APART_S = 0.1
"""GPM reports the activity between two samples; the first reading takes both."""


class NvmlTelemetry:
    """Readings through NVML; the driver is opened at the first reading, and stays open until `close`."""

    def __init__(self, library: Nvml | None = None, *, clock: Clock | None = None) -> None:
        """Prepare; nothing is loaded yet.

        Args:
            library: The module pynvml or a fake; None imports it when it is needed.
            clock: Time.
        """
        self._library = library
        self._clock = clock or SystemClock()
        self._gpus: list[NvmlGpu] | None = None
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
        if self._gpus is None:
            self._gpus = self._open()
            self._clock.sleep(FIRST_SAMPLES_APART_S)
        self._hear_xids()
        readings = [gpu.reading(self._clock.now_s()) for gpu in self._gpus]
        if any(reading.memory_total_bytes == 0 for reading in readings):
            self.close()
        return tuple(sorted(readings, key=lambda reading: reading.index))

    def close(self) -> None:
        """Close the driver; the next reading opens it again."""
        for gpu in self._gpus or []:
            if gpu.gpm is not None:
                gpu.gpm.close()
        if self._gpus is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
        self._gpus, self._events = None, None

    def _open(self) -> list[NvmlGpu]:
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as exc:
            raise DeviceError(f"NVML: {exc}; is the NVIDIA driver loaded? run: nvidia-smi") from exc
        self._events = query(nvml, nvml.nvmlEventSetCreate)
        gpus = []
        for number in range(count):
            with contextlib.suppress(nvml.NVMLError):  # lost before its name was known
                gpus.append(NvmlGpu(nvml, nvml.nvmlDeviceGetHandleByIndex(number), number))
                if self._events is not None:
                    gpus[-1].listen(self._events)
        return gpus

    def _hear_xids(self) -> None:
        """Record the Xids since the last reading; a timeout means that there are no more."""
        while self._events is not None:
            event = query(self._nvml, self._nvml.nvmlEventSetWait, self._events, 0)
            if event is None:
                return
            uuid = query(self._nvml, self._nvml.nvmlDeviceGetUUID, event.device)
            for gpu in self._gpus or []:
                if uuid is not None and gpu.uuid == decoded(uuid):
                    gpu.heard(int(event.eventData))
