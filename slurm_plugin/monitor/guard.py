"""A driver that hangs must not hang a hook: readings taken in a child process, with a time limit.

A thread would not do: a process whose thread hangs in a driver call cannot end either, and slurmd would wait for it.
The child has a session of its own and none of the hook's files, so nothing waits for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
from collections.abc import Callable
from typing import NoReturn

from slurm_plugin.core.clock import Clock, Deadline
from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.gpu import GpuReading
from slurm_plugin.core.units import KIB
from slurm_plugin.monitor.telemetry import Telemetry
from slurm_plugin.monitor.window import reading_from


class GuardedTelemetry:
    """Telemetry whose every reading is taken afresh by a child, or given up in time."""

    def __init__(self, source: Callable[[], Telemetry], *, timeout_s: float, clock: Clock) -> None:
        """Prepare; nothing is started yet.

        Args:
            source: Makes the telemetry, inside the child.
            timeout_s: How long one reading may take.
            clock: Time.
        """
        self._source = source
        self._timeout_s = timeout_s
        self._clock = clock

    def read(self) -> tuple[GpuReading, ...]:
        """Return a reading of every GPU.

        Raises:
            DeviceError: The driver is missing, failed, or did not answer in time.
        """
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _answer(self._source, writer)
        os.close(writer)
        try:
            text = self._receive(reader)
        finally:
            os.close(reader)
            _dismiss(child)
        try:
            answer = json.loads(text)
        except ValueError as exc:
            raise DeviceError("the driver ended the process that asked it") from exc
        if "error" in answer:
            raise DeviceError(answer["error"])
        return tuple(reading_from(row) for row in answer["readings"])

    def _receive(self, reader: int) -> bytes:
        deadline = Deadline(self._clock, self._timeout_s)
        parts: list[bytes] = []
        while True:
            ready, _, _ = select.select([reader], [], [], deadline.remaining_s())
            if not ready:
                raise DeviceError(f"the driver did not answer in {self._timeout_s:g} s")
            part = os.read(reader, 64 * KIB)
            if not part:
                return b"".join(parts)
            parts.append(part)


def _answer(source: Callable[[], Telemetry], writer: int) -> NoReturn:
    """In the child: read, write the answer, end without the parent's cleaning up."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        try:
            answer: dict[str, object] = {
                "readings": [dataclasses.asdict(reading) for reading in source().read()]
            }
        except DeviceError as exc:
            answer = {"error": str(exc)}
        with os.fdopen(writer, "w", encoding="utf-8") as out:
            json.dump(answer, out)
    finally:
        os._exit(0)


def _dismiss(child: int) -> None:
    """End the child without waiting for one that hangs in the driver; init takes what stays."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, os.WNOHANG)
