"""DCGM's texts as its documentation shows them (written after it by hand; no machine with DCGM was at hand)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fake_nvml import FakeGpu, FakeNvml
from fakes import FakeClock

from slurm_plugin.core.errors import DeviceError
from slurm_plugin.monitor.gpus.dcgm import DcgmTelemetry, parse_discovery, parse_dmon
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry

DATA = Path(__file__).resolve().parents[4] / "data"
DMON = (DATA / "dcgmi_dmon.documented.txt").read_text()
DISCOVERY = (DATA / "dcgmi_discovery.documented.txt").read_text()
FIRST, SECOND = "GPU-1f26b8a3-0001-4bd2-9f3f-5e1b6a000001", "GPU-1f26b8a3-0002-4bd2-9f3f-5e1b6a000002"


@pytest.fixture
def dcgmi(tmp_path: Path) -> str:
    """Return a program that answers as dcgmi does."""
    shutil.copy(DATA / "dcgmi_dmon.documented.txt", tmp_path / "dmon")
    shutil.copy(DATA / "dcgmi_discovery.documented.txt", tmp_path / "discovery")
    program = tmp_path / "dcgmi"
    program.write_text(f'#!/bin/sh\nexec /bin/cat "{tmp_path}/$1"\n')
    program.chmod(0o755)
    return str(program)


def nvml(*physical_gpus: FakeGpu) -> NvmlTelemetry:
    return NvmlTelemetry(FakeNvml(*physical_gpus), clock=FakeClock())


def test_discovery():
    assert parse_discovery(DISCOVERY) == {0: FIRST, 1: SECOND}


def test_dmon_takes_the_last_sample_with_figures():
    found = parse_dmon(DMON)
    assert (found[0].graphics, found[0].smact, found[0].smocc) == (1.0, 0.008, 0.004)
    assert found[1].smact == 0.0


@pytest.mark.parametrize("text", ["", "GPU 0 N/A N/A N/A N/A N/A", "GPU 0 1.0", "Error: unable to connect"])
def test_dmon_without_figures(text: str):
    assert parse_dmon(text) == {}


def test_activity_replaces_utilisation_by_uuid(dcgmi: str):
    physical_gpus = FakeGpu(uuid=SECOND, gpm=None), FakeGpu(uuid=FIRST, gpm=None, minor=1)
    second, first = DcgmTelemetry(nvml(*physical_gpus), dcgmi=dcgmi).read()
    assert (first.smact, first.smact_source, first.counters.graphics) == (0.008, "dcgm", 1.0)
    assert (second.smact, second.smact_source) == (0.0, "dcgm")


def test_gpus_with_gpm_need_no_dcgm():
    (reading,) = DcgmTelemetry(nvml(FakeGpu(uuid=FIRST)), dcgmi="/nowhere/dcgmi").read()
    assert reading.smact_source == "nvml-gpm"


def test_without_dcgm_utilisation_stays_and_is_flagged():
    (reading,) = DcgmTelemetry(nvml(FakeGpu(gpm=None)), dcgmi="/nowhere/dcgmi").read()
    assert reading.smact_source == "nvml-utilisation"


def test_where_dcgm_alone_is_configured_its_absence_is_reported():
    with pytest.raises(DeviceError, match="systemctl start nvidia-dcgm"):
        DcgmTelemetry(nvml(FakeGpu()), dcgmi="/nowhere/dcgmi", only=True).read()
