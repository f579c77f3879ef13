"""What a compressed replay shows if trainings wait for data as in the trace, or never.

    python bench/simulate_compressed.py TRACE

Relative to whole GPUs under the same compression. docs/measurements/2026-11-simulator.md compares it with a measured
replay.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.simulate import command
from slurm_plugin.simulate.question import Question

FIGURES = ("makespan_s", "mean_completion_s", "energy_j")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", type=Path)
    parser.add_argument("--compress", type=float, default=150.0)
    parser.add_argument("--start-up-s", type=float, nargs="+", default=[0.0, 7.0])
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--gpu-memory-mib", type=int, default=143_000)
    options = parser.parse_args()
    print("| loaders | start-up | makespan | mean completion | energy | median slowdown | P95 |")
    for name, never_wait in (("as in the trace", False), ("never waited for", True)):
        for start_up_s in options.start_up_s:
            question = Question(
                trace=options.trace,
                nodes=1,
                gpus_per_node=options.gpus,
                gpu_memory_mib=options.gpu_memory_mib,
                settings=PartitionConfig(
                    confidence="bound", compute_overcommit=0.0
                ),  # as the run that it is compared with
                pin="bound",
                compress=options.compress,
                start_up_s=start_up_s,
                backfill_s=2.0,
                never_wait=never_wait,
            )
            whole = command.simulate(replace(question, baseline="whole"), SystemClock())
            shared = command.simulate(question, SystemClock())
            ratios = " | ".join(f"{shared[figure] / whole[figure]:.2f}" for figure in FIGURES)
            slow = f"{shared['median_slowdown']:.2f} | {shared['p95_slowdown']:.1f}"
            print(f"| {name} | {start_up_s:g} s | {ratios} | {slow} |")


if __name__ == "__main__":
    main()
