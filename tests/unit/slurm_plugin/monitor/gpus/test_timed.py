"""Readings in a child process: what it says comes back, what hangs is left behind."""

from __future__ import annotations

import errno
import os
import time

import pytest

from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.records.gpu import GpuCounters, GpuProcess, GpuReading
from slurm_plugin.monitor.gpus.timed import TimelyTelemetry
from tests.timing import within

READING = GpuReading(
    uuid="GPU-a",
    index=3,
    name="NVIDIA H200",
    memory_total_bytes=100,
    memory_used_bytes=7,
    time_s=1.5,
    smact=0.25,
    smact_source="nvml-gpm",
    processes=(GpuProcess(pid=1, memory_bytes=None),),
    counters=GpuCounters(power_w=75.5),
)


class Answers:
    def read(self) -> tuple[GpuReading, ...]:
        return (READING,)


class Hangs:
    def read(self) -> tuple[GpuReading, ...]:
        time.sleep(60)
        return ()


class Fails:
    def read(self) -> tuple[GpuReading, ...]:
        raise DeviceError("no driver")


class Dies:
    def read(self) -> tuple[GpuReading, ...]:
        os._exit(11)


class Breaks:
    def read(self) -> tuple[GpuReading, ...]:
        raise ZeroDivisionError


def timely(source: type, timeout_s: float = 60.0) -> TimelyTelemetry:
    return TimelyTelemetry(source, timeout_s=timeout_s)


def test_a_reading_comes_back_whole():
    assert timely(Answers).read() == (READING,)


def test_a_driver_that_hangs_is_given_up_in_time():
    start_s = time.monotonic()
    with pytest.raises(DeviceError, match=r"no answer of the driver in 0\.1 s: out of time"):
        timely(Hangs, timeout_s=0.1).read()
    assert time.monotonic() - start_s < within(2.0)


def test_an_error_comes_back_as_it_was():
    with pytest.raises(DeviceError, match="no driver"):
        timely(Fails).read()


@pytest.mark.parametrize("source", [Dies, Breaks])
def test_a_child_that_ends_without_an_answer(source: type):
    with pytest.raises(DeviceError, match="its process ended early"):
        timely(source).read()


def test_a_node_that_starts_no_process_is_one_without_readings(monkeypatch: pytest.MonkeyPatch):
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    with pytest.raises(DeviceError, match="no process could be started: Resource temporarily"):
        timely(Answers).read()
