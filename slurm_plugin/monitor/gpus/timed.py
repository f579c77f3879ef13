"""Take readings in a child process with a time limit, so that a driver that hangs does not hang a hook.

A thread would not work: a process whose thread hangs in a driver call cannot end either, and slurmd would wait for it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.process.child import ChildError, in_child
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.gpus.telemetry import Telemetry
from slurm_plugin.monitor.window import reading_from


class TimelyTelemetry:
    """Telemetry with every reading taken by a new child, or given up in time."""

    def __init__(self, source: Callable[[], Telemetry], *, timeout_s: float) -> None:
        """Prepare; nothing is started yet.

        Args:
            source: Makes the telemetry, inside the child.
            timeout_s: How long one reading may take.
        """
        self._source = source
        self._timeout_s = timeout_s

    def read(self) -> tuple[GpuReading, ...]:
        """Return a reading of every GPU.

        Raises:
            DeviceError: The driver is missing, failed, or did not answer in time.
        """
        try:
            answer = json.loads(in_child(self._answer, timeout_s=self._timeout_s))
        except ChildError as exc:
            raise DeviceError(f"no answer of the driver in {self._timeout_s:g} s: {exc}") from exc
        if "error" in answer:
            raise DeviceError(answer["error"])
        return tuple(reading_from(row) for row in answer["readings"])

    def _answer(self) -> bytes:
        """Return a reading, or the driver's error message, as the child sends it."""
        answer: dict[str, Any]
        try:
            answer = {"readings": [dataclasses.asdict(reading) for reading in self._source().read()]}
        except DeviceError as exc:
            answer = {"error": str(exc)}
        return json.dumps(answer).encode()
