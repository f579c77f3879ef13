"""One busy thread: utilisation says full, SMACT says empty, and placement must believe SMACT."""

from __future__ import annotations

import dataclasses
import subprocess
import time

import pytest
from gpu.programs import PYTHON, Results

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.placement.choose import choose_gpu
from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.records.node import Allocation, Demand
from slurm_plugin.core.units import GIB
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry

pytestmark = pytest.mark.gpu

# torch.cuda._sleep launches one thread in one block that spins for so many clock cycles.
ONE_THREAD = """
import torch
torch.zeros(1, device="cuda")
print("ready", flush=True)
while True:
    torch.cuda._sleep(200_000_000)
    torch.cuda.synchronize()
"""


def test_one_thread_in_one_block(gpu: GpuReading, results: Results):
    with subprocess.Popen([PYTHON, "-c", ONE_THREAD], stdout=subprocess.PIPE, text=True) as spinner:
        try:
            assert spinner.stdout is not None
            assert spinner.stdout.readline() == "ready\n"
            telemetry = NvmlTelemetry()
            readings = []
            for _ in range(6):
                time.sleep(1.0)
                readings.append(telemetry.read()[0])
        finally:
            spinner.kill()
    last = readings[2:]
    graphics = sum(reading.counters.graphics or 0.0 for reading in last) / len(last)
    smact = sum(reading.smact or 0.0 for reading in last) / len(last)
    results.add(graphics=graphics, smact=smact, smocc=last[-1].counters.smocc, source=last[-1].smact_source)
    assert last[-1].smact_source == "nvml-gpm"
    assert graphics > 0.95
    assert smact < 0.05

    # The same GPU, with a neighbour that is older than the window, as SMACT and as utilisation tell it.
    settings = PartitionConfig(collocate=True, on_saturated="wait", policy="magm")
    neighbour = Allocation(
        job_id=1,
        user_id=0,
        kind="shared",
        gpus=(gpu.uuid,),
        gpu_indices=(0,),
        booked_bytes=4 * GIB,
        created_s=0.0,
    )
    demand = Demand(
        job_id=2, user_id=0, kind="shared", gpus=1, booked_bytes=8 * GIB, gpu_indices=(gpu.index,)
    )
    placed = {
        name: choose_gpu(
            (dataclasses.replace(last[-1], smact=activity),),
            Ledger(allocations=(neighbour,)),
            demand,
            settings,
            pin="bound",
            now_s=1000.0,
        )
        for name, activity in (("smact", smact), ("utilisation", graphics))
    }
    results.add(by_smact=placed["smact"].reason, by_utilisation=placed["utilisation"].reason)
    assert placed["smact"].gpus == (gpu.uuid,)
    assert placed["utilisation"].requeue
