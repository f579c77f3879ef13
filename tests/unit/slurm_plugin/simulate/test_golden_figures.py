"""Figures of three drawn traces, simulated in every way that there is, so that a change of them is seen.

The traces have measured workloads and others, waits for data, two-GPU jobs, jobs of unknown need and jobs with limits.
"""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from golden_texts import Golden

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.simulate.command import simulate
from slurm_plugin.simulate.question import SimulationQuestion
from slurm_plugin.simulate.traces.workloads import measured

WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "whole": ({}, {"baseline": "whole"}),
    "hand": ({}, {"baseline": "hand"}),
    "rad": ({}, {}),
    "rad, memory alone": ({"compute_overcommit": 0.0}, {}),
    "oracle": ({}, {"estimates": "oracle"}),
    "no estimates": ({}, {"estimates": "none"}),
    "exclusive": ({"policy": "exclusive"}, {}),
    "escalate": ({"confidence": 0.5, "recovery": "escalate"}, {}),
    "as installed": ({"share_multi_gpu": True}, {}),
    "as installed, gradients one by one": ({"share_multi_gpu": True}, {"gradients": "one by one"}),
    "wait": ({"on_saturated": "wait"}, {}),
    "slots": ({}, {"slot_min": 60.0, "start_up_s": 60.0}),
    "compressed": ({}, {"compress": 150.0, "start_up_s": 7.0, "backfill_s": 2.0}),
}
"""Settings of the partition, and of the question."""
SHOWN = (
    "makespan_s",
    "mean_completion_s",
    "mean_waiting_s",
    "p95_slowdown",
    "energy_j",
    "booked_over_used",
    "crashes",
    "recoveries",
    "requeues",
    "over_limit",
)


def write_trace(path: Path, seed: int) -> None:
    draw, at_s = random.Random(seed), 0.0
    names = [*sorted(measured()), "never measured"]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arrival_s", "workload", "gpus", "epochs", "duration_min", "mem_mib", "limit_min"])
        for _ in range(50):
            minutes = round(draw.lognormvariate(3.0, 1.0), 1)
            memory = round(draw.lognormvariate(8.8, 0.8)) if draw.random() < 0.9 else ""
            limit = round(minutes * draw.uniform(1.1, 4.0)) if draw.random() < 0.5 else ""
            gpus, epochs = 1 + (draw.random() < 0.15), int(1 + 20 * draw.random())
            name = names[int(draw.random() * len(names))]
            rows.writerow([round(at_s), name, gpus, epochs, minutes, memory, limit])
            at_s += draw.expovariate(1 / 240.0) * (0.1 if draw.random() < 0.7 else 2.8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_figures_of_a_trace(golden: Golden, tmp_path: Path, seed: int) -> None:
    write_trace(tmp_path / "trace.csv", seed)
    question = SimulationQuestion(
        trace=tmp_path / "trace.csv",
        nodes=2,
        gpus_per_node=2,
        gpu_memory_mib=40_000,
        settings=PartitionConfig(),
        pin="bound",
    )
    lines = []
    for way, (settings, changes) in WAYS.items():
        found = simulate(
            replace(question, settings=replace(PartitionConfig(), **settings), **changes), SystemClock()
        )
        lines.append(json.dumps({"way": way} | {name: found[name] for name in SHOWN}))
    golden(f"simulate/drawn{seed}.jsonl", "\n".join(lines))
