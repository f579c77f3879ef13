"""Measure the duration of one placement: 1 to 16 GPUs, 0 to 100 jobs in the ledger, every policy.

.rad/venv/bin/python bench/cost/placement_scale.py
"""

from __future__ import annotations

import statistics
import time

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.ledger.codec import decode, encode
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.placement.choose import choose_gpu
from slurm_plugin.core.records.gpu import GpuProcess, GpuReading
from slurm_plugin.core.records.node import Allocation, Demand
from slurm_plugin.core.records.submission import PolicyName
from slurm_plugin.core.units import GIB

GPUS = (1, 4, 8, 16)
JOBS = (0, 10, 50, 100)
POLICIES: tuple[PolicyName, ...] = ("round_robin", "magm", "lug", "mug")
REPEATS = 300
NOW_S = 1000.0


def main() -> None:
    """Print decision times, and what reading and writing the ledger adds."""
    print("one decision, ms (median, worst policy; in brackets the slowest of 300 x 4)")
    print(f"{'GPUs':>6}" + "".join(f"{f'{jobs} jobs':>18}" for jobs in JOBS))
    for gpus in GPUS:
        cells = [_decision_ms(gpus, jobs) for jobs in JOBS]
        print(f"{gpus:>6}" + "".join(f"{f'{median:.3f} ({worst:.2f})':>18}" for median, worst in cells))
    print("ledger to JSON and back, ms (median)")
    for jobs in JOBS:
        ledger = _ledger(16, jobs)
        took_ms = _median_ms(lambda ledger=ledger: decode(encode(ledger, boot_id="b"), boot_id="b"))
        print(f"{jobs:>6} jobs {took_ms:>10.3f}")


def _decision_ms(gpus: int, jobs: int) -> tuple[float, float]:
    ledger = _ledger(gpus, jobs)
    readings = tuple(_reading(index, ledger) for index in range(gpus))
    owners = {allocation.job_id: allocation.job_id for allocation in ledger.allocations}
    demand = Demand(job_id=9999, user_id=1, kind="shared", gpus=1, booked_bytes=GIB, gpu_indices=(0,))
    medians, slowest = [], []
    for policy in POLICIES:
        settings = PartitionConfig(collocate=True, policy=policy)
        times = []
        for _ in range(REPEATS):
            start_s = time.perf_counter()
            choose_gpu(readings, ledger, demand, settings, pin="bound", now_s=NOW_S, owners=owners)
            times.append((time.perf_counter() - start_s) * 1000)
        medians.append(statistics.median(times))
        slowest.append(max(times))
    return max(medians), max(slowest)


def _median_ms(action: object) -> float:
    times = []
    for _ in range(REPEATS):
        start_s = time.perf_counter()
        action()  # type: ignore[operator]
        times.append((time.perf_counter() - start_s) * 1000)
    return statistics.median(times)


def _ledger(gpus: int, jobs: int) -> Ledger:
    return Ledger(
        allocations=tuple(
            Allocation(
                job_id=number,
                user_id=1,
                kind="shared",
                gpus=(f"GPU-{number % gpus}",),
                gpu_indices=(number % gpus,),
                booked_bytes=GIB,
                created_s=NOW_S - 7.0 * number,
                smact=0.005,
            )
            for number in range(jobs)
        )
    )


def _reading(index: int, ledger: Ledger) -> GpuReading:
    jobs = ledger.on(f"GPU-{index}")
    return GpuReading(
        uuid=f"GPU-{index}",
        index=index,
        name="GPU",
        memory_total_bytes=140 * GIB,
        memory_used_bytes=len(jobs) * GIB // 2,
        time_s=NOW_S,
        smact=0.3,
        smact_source="nvml-gpm",
        processes=tuple(GpuProcess(pid=allocation.job_id, memory_bytes=GIB // 2) for allocation in jobs),
    )


if __name__ == "__main__":
    main()
