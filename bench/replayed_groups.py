"""Trainings side by side in replays, as groups: what their GPUs got done, and who waited.

    PYTHONPATH=. python bench/replayed_groups.py docs/results/replay/*.json

A group is who trains on a GPU while nobody comes or goes for LEAST_S. How fast each one was is read from the steps that
it noted, and compared with its pace alone; none of these runs was used to fit the model.
"""

from __future__ import annotations

import json
import statistics
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from slurm_plugin.admin.simulate.interference import TYPICAL_KERNEL_S, Load, slowdowns, together
from slurm_plugin.admin.simulate.metrics import quantile
from slurm_plugin.admin.simulate.workloads import measured

LEAST_S = 3.0
SMALL = 0.6
"""Kernels that keep fewer of the SMs busy count as small."""
SUMS = (0.5, 1.0, 1.5, 2.0, 3.0)

Member = tuple[Load, float]
"""What a training does alone, and how many times slower it was."""


def groups(run: Mapping[str, Any]) -> Iterator[list[Member]]:
    """Yield the groups of a run of one-GPU trainings."""
    rows = [(job, job["runs"][-1]) for job in run["jobs"] if job["runs"]]
    rows = [(job, last) for job, last in rows if last.get("progress") and job["steps"]]
    changes = sorted({last[name] for _, last in rows for name in ("called_s", "trains_s", "end_s")})
    gpus = {gpu for _, last in rows for gpu in last["gpus"].split(",")}
    for begin_s, end_s in pairwise(changes):
        if end_s - begin_s < LEAST_S:
            continue
        for gpu in sorted(gpus):
            on = [
                (job, last)
                for job, last in rows
                if gpu in last["gpus"].split(",") and last["trains_s"] <= begin_s and last["end_s"] >= end_s
            ]
            if len(on) > 1 and all(job["gpus"] == 1 for job, _ in on):
                yield [_member(job, last, begin_s, end_s) for job, last in on]


def _member(job: Mapping[str, Any], last: Mapping[str, Any], begin_s: float, end_s: float) -> Member:
    points = [(last["trains_s"], 0), *((at_s, step) for at_s, step in last["progress"])]
    done = _steps(points, end_s) - _steps(points, begin_s)
    alone = (end_s - begin_s) / job["period_s"]
    table = measured().get(job["workload"])
    load = Load(
        smact=job["smact"],
        busy=job["busy"],
        duty=min(1.0, job["step_s"] / job["period_s"]),
        kernel_s=table.kernel_s if table else TYPICAL_KERNEL_S,
    )
    return load, max(1.0, alone / max(done, 0.1))


def _steps(points: list[tuple[float, int]], at_s: float) -> float:
    """Return how many steps were done by a time, in a straight line between those that were noted."""
    place = bisect_right(points, (at_s, sys.maxsize))
    if place == len(points):
        return float(points[-1][1])
    (before_s, before), (after_s, after) = points[place - 1], points[place]
    return before + (after - before) * (at_s - before_s) / max(after_s - before_s, 1e-9)


def main() -> None:
    """Print the tables."""
    runs = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    runs = [run for run in runs if run["policy"] != "hand-mps"]  # each of its cards is called 0
    found = [group for run in runs for group in groups(run)]
    sums = [sum(load.mean_smact for load, _ in group) for group in found]
    print("| sum of SMACT alone | groups | trainings | done, median | model |\n|---|---|---|---|---|")
    for low, high in pairwise(SUMS):
        chosen = [group for group, total in zip(found, sums, strict=True) if low < total <= high]
        if not chosen:
            continue
        done = statistics.median(sum(load.mean_smact / slow for load, slow in group) for group in chosen)
        model = statistics.median(_model(group) for group in chosen)
        print(f"| {low:g} to {high:g} | {len(chosen)} | {sum(map(len, chosen))} | {done:.2f} | {model:.2f} |")
    print(
        "\n| kernels | trainings | slowdown, median | model | error, median | P90 |\n|---|---|---|---|---|---|"
    )
    for name, sizes in (("small", (True,)), ("large", (False,)), ("all", (True, False))):
        pairs = [
            (slow, said)
            for group, total in zip(found, sums, strict=True)
            if total <= SUMS[-1]
            for (load, slow), said in zip(group, slowdowns([load for load, _ in group]), strict=True)
            if (load.intensity < SMALL) in sizes
        ]
        if pairs:
            real, model = (statistics.median(column) for column in zip(*pairs, strict=True))
            off = sorted(abs(said / slow - 1.0) for slow, said in pairs)
            middle, most = quantile(off, 0.5), quantile(off, 0.9)
            print(f"| {name} | {len(pairs)} | {real:.2f} | {model:.2f} | {middle:.0%} | {most:.0%} |")


def _model(group: list[Member]) -> float:
    loads = [load for load, _ in group]
    return together(loads, slowdowns(loads))


if __name__ == "__main__":
    main()
