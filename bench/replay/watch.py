"""Sample memory, SM activity and power of every GPU from outside: neither Slurm nor RAD's hooks are queried."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from lab.watch import job_of
from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.units import to_mib_up
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from slurm_plugin.monitor.gpus.simulated import SimulatedGpus
from slurm_plugin.monitor.gpus.telemetry import Telemetry
from slurm_plugin.simulate.gpus.interference import power_w

EVERY_S = 0.5
LEAST_SMACT = 0.002
"""What GPUs without a training show."""


class Watch:
    """Samples in a thread of its own."""

    def __init__(self, simulated: Path | None) -> None:
        """Take the simulated GPUs of a folder, or the machine's own."""
        self._telemetry: Telemetry = SimulatedGpus(simulated) if simulated else NvmlTelemetry()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self.times_s: list[float] = []
        self.gpus: list[dict[str, Any]] = []
        self.peaks_mib: dict[int, int] = {}
        """Most that a job used on one GPU, by Slurm's id."""
        self.active = True
        """Whether any GPU computed at the last look; so is one whose activity cannot be read."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """End, and return the samples."""
        self._stop.set()
        self._thread.join(10)
        return {"times_s": [round(t, 2) for t in self.times_s], "gpus": self.gpus}

    def _loop(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                self._sample()
            except DeviceError as exc:
                print(f"watch: {exc}", flush=True)

    def _sample(self) -> None:
        readings = self._telemetry.read()
        now_s = time.time()
        if not self.gpus:
            keys = ("used_mib", "smact", "power_w", "jobs")
            self.gpus = [
                {
                    "index": gpu.index,
                    "name": gpu.name,
                    "usable_mib": to_mib_up(gpu.usable_bytes),
                    "energy_j": 0.0,
                    **{key: [] for key in keys},
                }
                for gpu in readings
            ]
            self._first_j = [gpu.counters.energy_j for gpu in readings]
        for device, gpu, first_j in zip(self.gpus, readings, self._first_j, strict=True):
            watts = gpu.counters.power_w
            if gpu.smact_source == "simulated":
                watts = power_w(gpu.smact or 0.0)
            if gpu.counters.energy_j is not None and first_j is not None:
                device["energy_j"] = round(gpu.counters.energy_j - first_j, 1)
            elif self.times_s and watts is not None:
                device["energy_j"] = round(device["energy_j"] + watts * (now_s - self.times_s[-1]), 1)
            used = [(job_of(process.pid), process.memory_bytes or 0) for process in gpu.processes]
            jobs = {key[0] for key, _ in used if key is not None}
            for key, memory_bytes in used:
                if key is not None:
                    self.peaks_mib[key[0]] = max(self.peaks_mib.get(key[0], 0), to_mib_up(memory_bytes))
            device["used_mib"].append(to_mib_up(gpu.memory_used_bytes))
            device["smact"].append(None if gpu.smact is None else round(gpu.smact, 3))
            device["power_w"].append(None if watts is None else round(watts, 1))
            device["jobs"].append(len(jobs))
        self.times_s.append(now_s)
        self.active = any(gpu.smact is None or gpu.smact >= LEAST_SMACT for gpu in readings)
