"""Simulate how long jobs wait if requeued jobs keep their queue position, are first in the queue, or are last.

    PYTHONPATH=bench:. python bench/simulation/requeue_order.py TRACE ...      (a minute and a half each)

Slurm 22.05 on four nodes of eight GPUs that are always full: no later Slurm had a requeue in these simulations. Jobs
are drawn from each TRACE's rows. In the control jobs keep their positions, too, but requeued ones wait a second longer:
so much comes from any small change. Minutes; the mean over DRAWS draws, then the mean difference to kept positions with
its standard error.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from replay.as_measured import rewritten

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.simulate.engine import Engine
from slurm_plugin.simulate.progress import SimulatedJob
from slurm_plugin.simulate.question import SimulationQuestion
from slurm_plugin.simulate.result import Result
from slurm_plugin.simulate.scenario import scenario
from slurm_plugin.slurm.versions import OLDEST

NODES, GPUS, JOBS, LOAD = 4, 8, 1500, 5.0
REQUEUE_S = 123.0
"""Slurm's least delay of a requeued job, by default (slurm/versions.py)."""
DRAWS = 10
FIRST = 1
"""A priority above all others."""


class Boosted(Engine):
    """Requeued jobs are first in the queue until they start."""

    def _requeue(self, job: SimulatedJob, gpu_indices: tuple[int, ...], now_s: float) -> None:
        job.priority = FIRST
        super()._requeue(job, gpu_indices, now_s)


class Last(Engine):
    """Requeued jobs are new to Slurm."""

    def _requeue(self, job: SimulatedJob, gpu_indices: tuple[int, ...], now_s: float) -> None:
        job.queued_s = now_s
        super()._requeue(job, gpu_indices, now_s)


ORDERS: Mapping[str, tuple[type[Engine], float]] = {
    "kept": (Engine, REQUEUE_S),
    "control": (Engine, REQUEUE_S + 1.0),
    "first": (Boosted, REQUEUE_S),
    "last": (Last, REQUEUE_S),
}


def write_drawn(rows: Sequence[Mapping[str, str]], target: Path, seed: int) -> None:
    """Write a trace of JOBS jobs drawn from others, that take LOAD times the time of all GPUs without sharing."""
    draw, at_s = random.Random(seed), 0.0
    each_s = statistics.fmean(float(row["duration_min"]) * 60 * int(row["gpus"]) for row in rows)
    with target.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), extrasaction="ignore")
        table.writeheader()
        for _ in range(JOBS):
            table.writerow({**draw.choice(rows), "arrival_s": f"{at_s:.1f}"})
            at_s += draw.expovariate(NODES * GPUS * LOAD / each_s)


def run(trace: Path, order: str) -> Result:
    """Return a simulation's result."""
    kind, requeue_s = ORDERS[order]
    question = SimulationQuestion(
        trace=trace,
        nodes=NODES,
        gpus_per_node=GPUS,
        gpu_memory_mib=80_000,
        settings=PartitionConfig(),
        pin="bound",
        slurm=OLDEST,
    )
    found = scenario(question)
    return kind(replace(found.cluster, requeue_s=requeue_s), found.jobs).run()


def waits_min(result: Result, which: Callable[[SimulatedJob], bool] = lambda job: True) -> list[float]:
    """Return how long jobs waited, in order of length."""
    return sorted(((job.first_start_s or 0.0) - job.trace.submit_s) / 60 for job in result.jobs if which(job))


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile of values in order."""
    return values[int(0.95 * (len(values) - 1))]


FIGURES: Mapping[str, Callable[[Result], float]] = {
    "requeued jobs": lambda result: sum(job.requeues > 0 for job in result.jobs),
    "makespan": lambda result: result.end_s / 60,
    "mean wait": lambda result: statistics.fmean(waits_min(result)),
    "P95 wait": lambda result: p95(waits_min(result)),
    "P95 of others": lambda result: p95(waits_min(result, lambda job: not job.requeues)),
    "mean of requeued": lambda result: statistics.fmean(waits_min(result, lambda job: job.requeues > 0)),
    "P95 of requeued": lambda result: p95(waits_min(result, lambda job: job.requeues > 0)),
}


def main() -> None:
    """Print a table for each trace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path, nargs="+")
    options = parser.parse_args()
    for source in options.traces:
        rows = rewritten(list(csv.DictReader(source.read_text().splitlines())))
        found: dict[str, list[list[float]]] = {order: [] for order in ORDERS}
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(DRAWS):
                trace = Path(folder, f"{seed}.csv")
                write_drawn(rows, trace, seed)
                for order, lines in found.items():
                    result = run(trace, order)
                    lines.append([figure(result) for figure in FIGURES.values()])
        print(f"| {source.stem} | {' | '.join(FIGURES)} |\n|---|{'---|' * len(FIGURES)}")
        for order, lines in found.items():
            cells = []
            for values, kept in zip(zip(*lines, strict=True), zip(*found["kept"], strict=True), strict=True):
                differences = [one - other for one, other in zip(values, kept, strict=True)]
                spread = statistics.stdev(differences) / DRAWS**0.5
                cells.append(
                    f"{statistics.fmean(values):.1f} ({statistics.fmean(differences):+.1f} ± {spread:.1f})"
                )
            print(f"| {order} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
