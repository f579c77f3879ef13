"""SM activity through DCGM (`dcgmi`), for GPUs before Hopper, where NVML does not report it.

DCGM's profiling fields (https://docs.nvidia.com/datacenter/dcgm/, "Profiling Metrics") need Volta or later, and its
host engine running: systemctl start nvidia-dcgm. The texts that this module reads follow NVIDIA's documentation; it
was not tried on a machine with DCGM, as none was available.
"""

from __future__ import annotations

import dataclasses
import re

from slurm_plugin.core.errors import CommandError, DeviceError
from slurm_plugin.core.process.run import run
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.gpus.telemetry import GpuActivity, Telemetry

FIELDS = {
    "graphics": 1001,  # DCGM_FI_PROF_GR_ENGINE_ACTIVE
    "smact": 1002,  # DCGM_FI_PROF_SM_ACTIVE
    "smocc": 1003,  # DCGM_FI_PROF_SM_OCCUPANCY
    "tensor": 1004,  # DCGM_FI_PROF_PIPE_TENSOR_ACTIVE
    "dram": 1005,  # DCGM_FI_PROF_DRAM_ACTIVE
}
"""Attribute -> field id; all are ratios from 0 to 1."""

_TIMEOUT_S = 2.0
_INTERVAL_MS = 100
_SAMPLES = 2  # the first one has no predecessor and says N/A
_DMON_LINE = re.compile(r"^GPU\s+(\d+)\s+(.*)$", re.MULTILINE)
_DISCOVERED = re.compile(r"^\|\s*(\d+)\s*\|.*?\bUUID:\s*(GPU-[0-9a-f-]+)", re.MULTILINE | re.DOTALL)


class DcgmTelemetry:
    """Another source's readings, with activity from DCGM where that source has none."""

    def __init__(self, base: Telemetry, *, dcgmi: str = "dcgmi", only: bool = False) -> None:
        """Prepare; nothing is started yet.

        Args:
            base: Source of memory and processes.
            dcgmi: The program, by name or absolute path.
            only: Take activity from DCGM also where the base reports SM activity itself.
        """
        self._base = base
        self._dcgmi = dcgmi
        self._only = only
        self._uuids: dict[int, str] | None = None

    def read(self) -> tuple[GpuReading, ...]:
        """Return a reading of every GPU; those that DCGM does not report either stay unchanged.

        Raises:
            DeviceError: The base failed; or DCGM did, where it is the only source requested.
        """
        readings = self._base.read()
        if not self._only and not any(_wanting(reading) for reading in readings):
            return readings
        try:
            activities = self._activities()
        except CommandError as exc:
            if self._only:
                raise DeviceError(f"DCGM: {exc}; run: systemctl start nvidia-dcgm") from exc
            return readings
        return tuple(
            _with(reading, activities[reading.uuid])
            if reading.uuid in activities and (self._only or _wanting(reading))
            else reading
            for reading in readings
        )

    def _activities(self) -> dict[str, GpuActivity]:
        if self._uuids is None:
            self._uuids = parse_discovery(run([self._dcgmi, "discovery", "-l"], timeout_s=_TIMEOUT_S))
        fields = ",".join(str(number) for number in FIELDS.values())
        argv = [self._dcgmi, "dmon", "-e", fields, "-d", str(_INTERVAL_MS), "-c", str(_SAMPLES)]
        by_number = parse_dmon(run(argv, timeout_s=_TIMEOUT_S))
        return {
            self._uuids[number]: measured for number, measured in by_number.items() if number in self._uuids
        }


def parse_discovery(text: str) -> dict[int, str]:
    """Return the UUID of each of DCGM's GPU numbers, from `dcgmi discovery -l`."""
    return {int(number): uuid for number, uuid in _DISCOVERED.findall(text)}


def parse_dmon(text: str) -> dict[int, GpuActivity]:
    """Return the last complete sample of each GPU, from `dcgmi dmon` with the fields above in their order."""
    found: dict[int, GpuActivity] = {}
    for number, columns in _DMON_LINE.findall(text):
        values = columns.split()
        if len(values) != len(FIELDS):
            continue
        measured = {name: _share(value) for name, value in zip(FIELDS, values, strict=True)}
        if measured["smact"] is not None:
            found[int(number)] = GpuActivity(**measured)
    return found


def _share(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value <= 1.0 else None


def _wanting(reading: GpuReading) -> bool:
    return reading.smact_source == "nvml-utilisation" and not reading.mig


def _with(reading: GpuReading, activity: GpuActivity) -> GpuReading:
    counters = dataclasses.replace(
        reading.counters,
        graphics=activity.graphics,
        smocc=activity.smocc,
        tensor=activity.tensor,
        dram=activity.dram,
    )
    return dataclasses.replace(reading, smact=activity.smact, smact_source="dcgm", counters=counters)
