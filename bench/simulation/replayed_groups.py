"""Compare groups of trainings that shared a GPU in replays with the interference model.

    PYTHONPATH=bench:. python bench/simulation/replayed_groups.py docs/results/replay/*.json.xz

A group is the jobs that train on a GPU while none comes or goes for LEAST_S. How fast each one was is read
from the steps that it noted, and compared with its pace alone; none of these runs was used to fit the model.
"""

from __future__ import annotations

import math
import statistics
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from replay.report.runs import run_record

from slurm_plugin.simulate.gpus.interference import TYPICAL_KERNEL_S, Load, slowdowns, together
from slurm_plugin.simulate.metrics import quantile
from slurm_plugin.simulate.traces.workloads import measured

LEAST_S = 3.0
SMALL = 0.6
"""Kernels that keep fewer of the SMs busy count as small."""
SUMS = (0.5, 1.0, 1.5, 2.0, 3.0)

SERVED = (0.0, 0.5, 0.85, 1.0)
"""An MPS server with hardly any work, with some, with work nearly all the time."""

Trainer = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A job and its last run."""
Member = tuple[Load, float]
"""What a training does alone, and how many times slower it was."""


def groups(run: Mapping[str, Any]) -> Iterator[list[Member]]:
    """Yield the groups of a run of one-GPU trainings."""
    for begin_s, end_s, on_gpu in side_by_side(run):
        for on in on_gpu.values():
            if len(on) > 1 and all(job["gpus"] == 1 for job, _ in on):
                yield [_member(job, last, begin_s, end_s) for job, last in on]


def side_by_side(run: Mapping[str, Any]) -> Iterator[tuple[float, float, Mapping[str, list[Trainer]]]]:
    """Yield each stretch of time in which no job comes or goes: its begin, its end, and the jobs on each GPU."""
    rows = [(job, job["runs"][-1]) for job in run["jobs"] if job["runs"]]
    rows = [(job, last) for job, last in rows if last.get("progress") and job["steps"]]
    changes = sorted({last[name] for _, last in rows for name in ("called_s", "trains_s", "end_s")})
    gpus = sorted({gpu for _, last in rows for gpu in last["gpus"].split(",")})
    for begin_s, end_s in pairwise(changes):
        if end_s - begin_s < LEAST_S:
            continue
        there = [(job, last) for job, last in rows if last["trains_s"] <= begin_s and last["end_s"] >= end_s]
        yield (
            begin_s,
            end_s,
            {gpu: [pair for pair in there if gpu in pair[1]["gpus"].split(",")] for gpu in gpus},
        )


@dataclass(frozen=True, slots=True)
class Handover:
    """A training of several GPUs in such a stretch of time.

    Attributes:
        workload: What it trains.
        others: How many others that take turns are on its first GPU.
        served: Share of the time in which clients of that GPU's MPS server have work, alone.
        wait_s: By how much each gradient that is handed over makes its step longer.
        slowdown: How many times slower it was than its measured steps are alone.
        model: The same, as the model says.
    """

    workload: str
    others: int
    served: float
    wait_s: float
    slowdown: float
    model: float


def handovers(run: Mapping[str, Any]) -> Iterator[Handover]:
    """Yield what became of the trainings of several GPUs in a run, where they hand gradients over one by one."""
    if run.get("exchange", "copies") != "copies":
        return
    for begin_s, end_s, on_gpu in side_by_side(run):
        for job, last in {id(pair[1]): pair for on in on_gpu.values() for pair in on}.values():
            table = measured().get(job["workload"])
            points = [point for point in last["progress"] if begin_s <= point[0] <= end_s]
            if job["gpus"] == 1 or table is None or not table.exchanges or len(points) < 2:
                continue
            step_s = (points[-1][0] - points[0][0]) / (points[-1][1] - points[0][1])
            neighbours = [
                [_alone(other) for other, _ in on_gpu[gpu] if other is not job]
                for gpu in last["gpus"].split(",")
            ]
            own = table.alone(gpus=job["gpus"], duty=1.0)
            loads = (own, *(replace(own, exchanges_per_s=0.0) for _ in neighbours[1:]))
            yield Handover(
                workload=job["workload"],
                others=sum(load.turns for load in neighbours[0]),
                served=1.0
                - math.prod(1.0 - load.busy * load.duty for load in neighbours[0] if not load.turns),
                wait_s=(step_s - table.step_s) / table.exchanges,
                slowdown=step_s / table.step_s,
                model=max(slowdowns([load, *on])[0] for load, on in zip(loads, neighbours, strict=True)),
            )


def _alone(job: Mapping[str, Any]) -> Load:
    table = measured().get(job["workload"])
    duty = min(1.0, job["step_s"] / job["period_s"])
    if table is None or table.gpus != job["gpus"]:
        return Load(smact=job["smact"], busy=job["busy"], duty=duty, halves=job["gpus"] > 1)
    return table.alone(gpus=job["gpus"], duty=duty)


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
    runs = [run_record(Path(name)) for name in sys.argv[1:]]
    # By hand under MPS each GPU is called 0, and without MPS the model of MPS says nothing.
    runs = [run for run in runs if run["policy"] not in ("hand-mps", "hand")]
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
    _tell([one for run in runs for one in handovers(run)])


def _tell(found: Sequence[Handover]) -> None:
    """Print what trainings of several GPUs came to, by the jobs on the GPU that gathers their gradients."""
    print(
        "\n| workload | others by turns | MPS server has work | stretches | ms a gradient | slowdown | model |\n"
        "|---|---|---|---|---|---|---|"
    )
    for workload in sorted({one.workload for one in found}):
        for others in sorted({one.others for one in found}):
            for low, high in ((-1.0, 0.0), *pairwise(SERVED)):
                some = [
                    one
                    for one in found
                    if one.workload == workload and one.others == others and low < one.served <= high
                ]
                if some:
                    wait_ms = 1e3 * statistics.median(one.wait_s for one in some)
                    real, model = (
                        statistics.median(one.slowdown for one in some),
                        statistics.median(one.model for one in some),
                    )
                    share = "never" if high == 0 else f"{low:g} to {high:g}"
                    print(
                        f"| {workload} | {others} | {share} | {len(some)} | {wait_ms:.2f} | {real:.2f} | {model:.2f} |"
                    )


def _model(group: list[Member]) -> float:
    loads = [load for load, _ in group]
    return together(loads, slowdowns(loads))


if __name__ == "__main__":
    main()
