"""Measure the duration of `rad simulate`: 1,000 nodes, 8,000 GPUs, 100,000 jobs.

python bench/cost/simulate_scale.py [--jobs 100000] [--nodes 1000] [--advise]

--advise measures how long `rad advise` takes over the same jobs, instead.
"""

from __future__ import annotations

import argparse
import csv
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.simulate.advice import advise
from slurm_plugin.simulate.command import settings_of, simulate
from slurm_plugin.simulate.question import SimulationQuestion


def write_trace(path: Path, jobs: int, rate: float) -> None:
    """Write random jobs: lognormal durations (median 67 min) and needs (median 10 GiB), one to eight GPUs."""
    draw, now_s = random.Random(1), 0.0
    with path.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["arrival_s", "workload", "gpus", "duration_min", "mem_mib"])
        for _ in range(jobs):
            now_s += draw.expovariate(rate)
            gpus = draw.choices((1, 2, 4, 8), (0.7, 0.12, 0.08, 0.1))[0]
            minutes = min(6000.0, draw.lognormvariate(4.2, 1.3))
            memory = min(75000.0, draw.lognormvariate(9.2, 0.9))
            name = f"model{draw.randint(0, 400)}"
            rows.writerow([f"{now_s:.1f}", name, gpus, f"{minutes:.2f}", f"{memory:.0f}"])


def crowd(folder: Path, jobs: int, nodes: int) -> SimulationQuestion:
    """Return so many random jobs on nodes of eight GPUs of 80 GB, as `rad install` sets RAD up.

    Args:
        folder: Where their trace is written.
        jobs: So many, back to back on that many nodes.
        nodes: Number of nodes.
    """
    trace = folder / "trace.csv"
    write_trace(trace, jobs, rate=nodes * 0.0016)
    return SimulationQuestion(
        trace=trace, nodes=nodes, gpus_per_node=8, gpu_memory_mib=80_000, settings=settings_of(None, None)
    )


def main() -> None:
    """Print a row for each way to run the trace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--advise", action="store_true")
    args = parser.parse_args()
    if args.advise:
        with tempfile.TemporaryDirectory() as folder:
            began_s = time.process_time()
            advise(crowd(Path(folder), args.jobs, args.nodes), SystemClock())
            print(f"rad advise: {time.process_time() - began_s:.0f} s")
        return
    print("| | simulated in | processor time | makespan | mean waiting | median slowdown |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        question = crowd(Path(folder), args.jobs, args.nodes)
        for name in ("whole", "rad"):
            began_s = time.process_time()
            found = simulate(replace(question, baseline="whole" if name == "whole" else "rad"), SystemClock())
            used_s = time.process_time() - began_s
            print(
                f"| {name} | {found['simulated_in_s']:.0f} s | {used_s:.0f} s | {found['makespan_s'] / 3600:.1f} h "
                f"| {found['mean_waiting_s'] / 3600:.2f} h | {found['median_slowdown']:.2f} |"
            )


if __name__ == "__main__":
    main()
