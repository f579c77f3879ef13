"""A small CNN three times at once, in time slices and through MPS; then a liar joins, and fails alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from gpu.programs import Results, Training
from mps_setup import stop_all

from slurm_plugin.core.records.gpu import GpuReading
from slurm_plugin.core.units import GIB
from slurm_plugin.mps import Mps

pytestmark = pytest.mark.gpu

SPAN_S = float(os.environ.get("RAD_SHARING_SPAN_S", "8"))
SMALL = ("--model", "resnet18", "--size", "64", "--batch", "64", "--report-every", "20")
COUNT = 3


def summed_rate(trainings: list[Training]) -> float:
    for training in trainings:
        training.wait_steps(reports=10)
    time.sleep(1.0)
    start_s = time.time()
    time.sleep(SPAN_S)
    end_s = time.time()
    return sum(training.rate(start_s, end_s) for training in trainings)


def start(folder: Path, mark: str, count: int, env: dict[str, str]) -> list[Training]:
    return [Training(folder, f"{mark}{number}", *SMALL, env=env) for number in range(count)]


def stop(trainings: list[Training]) -> None:
    for training in trainings:
        training.stop()


def test_sharing(gpu: GpuReading, run_folder: Path, results: Results):
    env = {"CUDA_VISIBLE_DEVICES": gpu.uuid}
    for mark, count in (("alone", 1), ("streams", COUNT)):
        trainings = start(run_folder, mark, count, env)
        try:
            results.add(**{f"{mark}_images_per_s": summed_rate(trainings)})
        finally:
            stop(trainings)

    mps = Mps(run_folder)
    started_s = time.monotonic()
    for job_id in range(1, COUNT + 2):
        caps = mps.acquire(
            gpu=gpu.uuid, user_id=0, job_id=job_id, cap_bytes=6 * GIB, gpu_bytes=gpu.usable_bytes
        )
        if job_id == 1:
            results.add(mps_first_start_s=time.monotonic() - started_s)
    trainings = start(run_folder, "mps", COUNT, {**env, **caps})
    try:
        results.add(mps_images_per_s=summed_rate(trainings))

        # It booked 6 GiB, claims in its own environment that it may have 100, and takes 20 after some steps.
        lied = {**env, **caps, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=100G"}
        before_s = time.time()
        liar = Training(run_folder, "liar", *SMALL, "--grab-gib", "20", env=lied)
        status = liar.process.wait(60)
        time.sleep(3.0)
        after_s = time.time()
        pauses = [training.longest_pause_s(before_s, after_s) for training in trainings]
        quiet = [training.longest_pause_s(before_s - SPAN_S, before_s) for training in trainings]
        results.add(
            liar_status=status,
            liar_said=next((x for x in liar.output().splitlines() if "OutOfMemory" in x), "")[:300],
            neighbours_longest_pause_s=pauses,
            neighbours_longest_pause_before_s=quiet,
        )
        assert status == 1
        assert "OutOfMemoryError" in liar.output()
        assert [training.process.poll() for training in trainings] == [None] * COUNT
        assert max(pauses) < 2.0
    finally:
        stop(trainings)
        stop_all(mps)
