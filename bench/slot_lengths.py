"""How long time slots should be, simulated: 4 nodes of 8 GPUs at 95 % of what whole GPUs can do, and above it.

    PYTHONPATH=. python bench/slot_lengths.py

Jobs that ask for longer save at the end of a slot, wait for Slurm's two minutes and queue up behind the others
(examples/resume); each start takes a minute.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from simulate_scale import write_trace

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.simulate.command import simulate
from slurm_plugin.simulate.question import Question

JOBS, NODES = 2000, 4
LOADS = {"95 %": 0.0019, "120 %": 0.0024}
SLOTS_MIN = (None, 720.0, 240.0, 120.0, 60.0)


def main() -> None:
    """Print a table for each load."""
    for load, rate in LOADS.items():
        print(f"\nload {load}\n\n| | slots | waiting | multi-GPU jobs' | completion | P95 | makespan |")
        print("|---|---|---|---|---|---|---|")
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder, "trace.csv")
            write_trace(trace, JOBS, rate=rate)
            for name in ("whole", "rad"):
                for slot_min in SLOTS_MIN:
                    question = Question(
                        trace=trace,
                        nodes=NODES,
                        gpus_per_node=8,
                        gpu_memory_mib=80_000,
                        settings=PartitionConfig(confidence="bound", compute_overcommit=0.0),
                        baseline="whole" if name == "whole" else "rad",
                        slot_min=slot_min,
                        start_up_s=60.0,
                    )
                    found = simulate(question, SystemClock())
                    names = (
                        "mean_waiting_s",
                        "mean_waiting_multi_gpu_s",
                        "mean_completion_s",
                        "p95_completion_s",
                    )
                    cells = [f"{found[figure] / 3600:.1f} h" for figure in (*names, "makespan_s")]
                    told = "none" if slot_min is None else f"{slot_min / 60:g} h"
                    print(f"| {name} | {told} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
