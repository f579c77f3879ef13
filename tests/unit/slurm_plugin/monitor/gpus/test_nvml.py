"""One test for each row of the table in monitor/gpus/nvml_gpu.py."""

from __future__ import annotations

import pytest
from fake_nvml import GIB, MIB, FakeGpu, FakeNvml
from fakes import FakeClock

from slurm_plugin.core.errors import DeviceError
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.monitor.gpus import nvml_gpu
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry


def read_one(physical_gpu: FakeGpu, **driver: bool) -> GpuReading:
    (reading,) = NvmlTelemetry(FakeNvml(physical_gpu, **driver), clock=FakeClock()).read()
    return reading


def test_memory_distinguishes_the_reserve():
    reading = read_one(FakeGpu())
    assert (reading.memory_used_bytes, reading.memory_reserved_bytes) == (10 * GIB, 615 * MIB)
    assert reading.usable_bytes == 140 * GIB - 615 * MIB


def test_memory_v1_counts_the_reserve_as_used():
    reading = read_one(FakeGpu(), memory_v2=False)
    assert (reading.memory_used_bytes, reading.memory_reserved_bytes) == (10 * GIB + 615 * MIB, None)
    assert reading.free_bytes == read_one(FakeGpu()).free_bytes


@pytest.mark.parametrize("processes_v3", [True, False])
def test_processes(processes_v3: bool):
    reading = read_one(FakeGpu(processes=((7, 3 * GIB),)), processes_v3=processes_v3)
    assert [(process.pid, process.memory_bytes) for process in reading.processes] == [(7, 3 * GIB)]


@pytest.mark.parametrize(
    ("reported", "seen"), [((7,), [True, False]), ((), [False, False]), (None, [None, None])]
)
def test_clients_of_mps(reported: tuple[int, ...] | None, seen: list[bool | None]):
    physical_gpu = FakeGpu(processes=((7, GIB), (8, GIB)), mps=reported)
    assert [process.mps for process in read_one(physical_gpu).processes] == seen


def test_rows_of_another_length_give_no_processes_that_cannot_be():
    scrambled = ((7, 3 * GIB), (0, 16040), (2**32 - 1, 0), (2**32 - 1, None))
    assert [process.pid for process in read_one(FakeGpu(processes=scrambled)).processes] == [7]


def test_every_row_of_the_table_has_a_source():
    rows = [line.split("|")[1:-1] for line in (nvml_gpu.__doc__ or "").splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    assert [what for what, *_, source in rows if not source.strip()] == []


def test_process_without_memory():
    assert read_one(FakeGpu(processes=((7, None),))).processes[0].memory_bytes is None


def test_activity_comes_from_gpm():
    reading = read_one(FakeGpu())
    assert (reading.smact, reading.smact_source) == (pytest.approx(0.125), "nvml-gpm")
    counters = reading.counters
    assert counters.graphics == pytest.approx(1.0)
    assert (counters.smocc, counters.tensor, counters.dram) == pytest.approx((0.04, 0.01, 0.02))
    assert counters.pcie_tx_bytes_s == pytest.approx(3 * MIB)


def test_the_first_reading_takes_two_samples_100_ms_apart():
    clock = FakeClock()
    telemetry = NvmlTelemetry(FakeNvml(FakeGpu()), clock=clock)
    telemetry.read()
    assert clock.slept == [0.1]
    telemetry.read()
    assert clock.slept == [0.1]


def test_without_gpm_utilisation_is_flagged():
    reading = read_one(FakeGpu(gpm=None))
    assert (reading.smact, reading.smact_source) == (pytest.approx(1.0), "nvml-utilisation")


def test_without_any_activity():
    reading = read_one(FakeGpu(gpm=None, utilisation=None))
    assert (reading.smact, reading.smact_source) == (None, None)


def test_mig_gpu_has_no_activity_of_its_own():
    reading = read_one(FakeGpu(mig=1))
    assert (reading.mig, reading.smact, reading.smact_source) == (True, None, None)


def test_one_metric_may_fail_alone():
    reading = read_one(FakeGpu(gpm_fails=frozenset({3})))
    assert reading.counters.smocc is None
    assert reading.smact == pytest.approx(0.125)


def test_slurms_index_is_the_minor_number():
    telemetry = NvmlTelemetry(
        FakeNvml(FakeGpu(uuid="GPU-a", minor=1), FakeGpu(uuid="GPU-b", minor=0)), clock=FakeClock()
    )
    assert [(reading.index, reading.uuid) for reading in telemetry.read()] == [(0, "GPU-b"), (1, "GPU-a")]


def test_without_a_minor_number_nvmls_index_counts():
    assert read_one(FakeGpu(minor=None)).index == 0


def test_mig_not_supported_means_off():
    assert read_one(FakeGpu(mig=None)).mig is False


def test_energy_and_ecc_may_be_missing():
    assert read_one(FakeGpu()).counters.energy_j == pytest.approx(5.0)
    assert read_one(FakeGpu(energy_mj=None)).counters.energy_j is None
    assert read_one(FakeGpu(ecc=None)).counters.ecc_uncorrected is None


def test_recovery_action_means_unhealthy():
    assert read_one(FakeGpu(recovery=0)).healthy
    assert not read_one(FakeGpu(recovery=1)).healthy


@pytest.mark.parametrize(("xid", "healthy"), [(13, True), (31, True), (79, False), (95, False)])
def test_xids_decide_where_there_is_no_recovery_action(xid: int, healthy: bool):
    reading = read_one(FakeGpu(recovery=None, xids=[xid]))
    assert (reading.counters.xid, reading.healthy) == (xid, healthy)


def test_no_later_xid_makes_a_gpu_healthy():
    reading = read_one(FakeGpu(recovery=None, xids=[48, 45, 45, 13]))
    assert (reading.counters.xid, reading.healthy) == (13, False)


def test_without_events_there_is_no_xid():
    assert read_one(FakeGpu(xids=[79]), events=False).counters.xid is None


def test_a_gpu_lost_at_the_start_is_left_out():
    driver = FakeNvml(FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b", minor=1, lost_at_open=True))
    assert [reading.uuid for reading in NvmlTelemetry(driver, clock=FakeClock()).read()] == ["GPU-a"]


def test_a_gpu_lost_later_is_unhealthy_and_comes_back():
    physical_gpu = FakeGpu()
    driver = FakeNvml(physical_gpu, FakeGpu(uuid="GPU-b", minor=1))
    telemetry = NvmlTelemetry(driver, clock=FakeClock())
    telemetry.read()
    physical_gpu.lost = True
    lost, other = telemetry.read()
    assert (lost.healthy, lost.free_bytes, other.healthy) == (False, 0, True)
    assert (driver.opened, driver.samples) == (0, 0)
    physical_gpu.lost = False
    assert [reading.healthy for reading in telemetry.read()] == [True, True]


def test_no_driver_is_one_line_with_the_fix():
    with pytest.raises(DeviceError, match="is the NVIDIA driver loaded"):
        NvmlTelemetry(FakeNvml(driver=False), clock=FakeClock()).read()


def test_names_may_be_bytes():
    assert read_one(FakeGpu(name=b"NVIDIA A100")).name == "NVIDIA A100"


def test_the_real_binding_without_a_driver():
    with pytest.raises(DeviceError):
        NvmlTelemetry().read()


@pytest.mark.parametrize("reported", [-1.0, float("nan"), 4294967295.0])
def test_a_share_that_is_none_is_not_reported(reported: float):
    assert read_one(FakeGpu(gpm={1: 50.0, 2: reported})).smact is None


def test_utilisation_that_is_none_is_not_reported():
    reading = read_one(FakeGpu(gpm=None, utilisation=4294967295))
    assert (reading.smact, reading.smact_source) == (None, None)


def test_a_reserve_beyond_the_gpu_leaves_nothing():
    reading = read_one(FakeGpu(total=GIB, reserved=2 * GIB))
    assert (reading.usable_bytes, reading.free_bytes) == (0, 0)


def test_samples_that_cannot_be_given_back_are_no_fault():
    physical_gpu = FakeGpu()
    driver = FakeNvml(physical_gpu)
    telemetry = NvmlTelemetry(driver, clock=FakeClock())
    telemetry.read()

    def lost(sample: object) -> None:
        raise driver.NVMLError(driver.NVML_ERROR_GPU_IS_LOST)

    driver.nvmlGpmSampleFree = lost  # type: ignore[method-assign]
    telemetry.close()
    assert driver.opened == 0
