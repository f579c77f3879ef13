"""Ways to keep GPUs from being packed beyond what they compute, simulated: python bench/admission.py TRACE ...

Each trace on so many GPUs of one node, relative to whole GPUs; a trace named `made:SEED` is drawn here, from the
workloads of the traces named before it, in bursts. What was chosen: docs/measurements/2026-11-sharing-simulated.md.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.simulate.command import simulate
from slurm_plugin.simulate.question import Question

ESCALATE = {"confidence": "auto", "recovery": "escalate"}
WAITS = {"on_saturated": "wait", "saturated_waits": 1000}
MEMORY = {"compute_overcommit": 0.0}
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "memory alone": (MEMORY, {}),
    "the default": ({}, {}),
    "the default, corrected by history": ({}, {"activity": "history"}),
    "the default, activity really known": ({}, {"activity": "seen"}),
    "the default, nothing told": ({}, {"activity": "none"}),
    **{
        f"a: overcommit {c:g}, activity {activity}": ({"compute_overcommit": c}, {"activity": activity})
        for activity in ("told", "history", "seen")
        for c in (1.0, 1.5, 2.4, 3.0)
    },
    **{
        f"a: max_slowdown {s:g}, activity {activity}": ({"max_slowdown": s}, {"activity": activity})
        for activity in ("told", "history")
        for s in (1.3, 2.0, 3.5, 6.7)
    },
    "the default, bf_min_age_reserve of 4 h": ({}, {"min_age_reserve_s": 14_400.0}),
    "memory alone, bf_min_age_reserve of 4 h": (MEMORY, {"min_age_reserve_s": 14_400.0}),
    "b: wait at SMACT 0.80, five times": ({**MEMORY, "on_saturated": "wait"}, {}),
    "b: wait at SMACT 0.80, to the end": ({**MEMORY, **WAITS}, {}),
    "b: wait at SMACT 0.95, to the end": ({**MEMORY, **WAITS, "smact_max": 0.95}, {}),
    "d: one GPU without shards": (MEMORY, {"kept": 1}),
    "d: drained by who ends first": (MEMORY, {"drain": True}),
    "f: MPS takes 700 MiB, shards of all memory": (MEMORY, {"server_mib": 700}),
    "f: the same, 1 GiB without shards": ({**MEMORY, "shards_per_gpu": 138}, {"server_mib": 700}),
    "e: confidence auto": ({**MEMORY, **ESCALATE}, {}),
    "e: confidence 0.9": ({**MEMORY, **ESCALATE, "confidence": 0.9}, {}),
}
"""Settings of the partition, and of the question."""
SHOWN = ("makespan_s", "mean_completion_s", "energy_j")


def drawn(seed: int, known: list[dict[str, str]], path: Path) -> Path:
    """Write a trace of 80 jobs drawn from the workloads that a trace names, with bursts, and return its file."""
    draw = random.Random(seed)
    at_s = 0.0
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arrival_s", "workload", "gpus", "epochs", "duration_min", "mem_mib"])
        for _ in range(80):
            row = draw.choice(known)
            memory = next(value for name, value in row.items() if name.startswith("mem_mib"))
            epochs = row.get("epochs", "")
            rows.writerow([round(at_s), row["workload"], row["gpus"], epochs, row["duration_min"], memory])
            at_s += draw.expovariate(1 / 240.0) * draw.choice((0.1, 0.1, 2.8))
    return path


def main() -> None:
    """Print a table for each trace, and the mean over all."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "traces", nargs="+", help="CSV files, or made:SEED (drawn from the CSV files named before)"
    )
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--gpu-memory-mib", type=int, default=143_000)
    parser.add_argument("--never-wait", action="store_true", help="trainings never wait for data")
    parser.add_argument("--pin", default="bound", choices=("slurm", "bound", "free"))
    options = parser.parse_args()
    means: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        known: list[dict[str, str]] = []
        for name in options.traces:
            if name.startswith("made:"):
                path = drawn(int(name.removeprefix("made:")), known, Path(folder, f"{name}.csv"))
            else:
                path = Path(name)
                with path.open() as file:
                    known += csv.DictReader(file)
            _table(path, options, lambda way, row: means.setdefault(way, []).append(row))
    print("\nmean over all traces\n\n| way | makespan | mean completion | energy | median slowdown | P95 |")
    print("|---|---|---|---|---|---|")
    for way, found in means.items():
        print(
            f"| {way} | "
            + " | ".join(f"{statistics.fmean(column):.2f}" for column in zip(*found, strict=True))
            + " |"
        )


def _table(path: Path, options: argparse.Namespace, note: Callable[[str, list[float]], None]) -> None:
    question = Question(
        trace=path,
        nodes=1,
        gpus_per_node=options.gpus,
        gpu_memory_mib=options.gpu_memory_mib,
        settings=PartitionConfig(confidence="bound"),
        pin=options.pin,
        never_wait=options.never_wait,
    )
    clock = SystemClock()
    whole = simulate(replace(question, baseline="whole"), clock)
    print(
        f"\n{path.stem}\n\n| way | makespan | mean completion | energy | median slowdown | P95 | crashes | put back |"
    )
    print("|---|---|---|---|---|---|---|---|")
    runs = {"hand-sized shards": simulate(replace(question, baseline="hand"), clock)}
    for way, (settings, more) in WAYS.items():
        asked = replace(question, settings=replace(question.settings, **settings), **more)
        runs[way] = simulate(asked, clock)
    for way, found in runs.items():
        row = [found[name] / whole[name] for name in SHOWN] + [
            found["median_slowdown"],
            found["p95_slowdown"],
        ]
        note(way, row)
        cells = " | ".join(f"{value:.2f}" for value in row)
        print(f"| {way} | {cells} | {found['crashes']} | {found['put_backs']} |", flush=True)


if __name__ == "__main__":
    main()
