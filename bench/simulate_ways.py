"""The default beside the aims, simulated, and ways that could bring it nearer.

    PYTHONPATH=.:bench python bench/simulate_ways.py TRACE ...

Each trace, and four drawn from their workloads, on one node, relative to whole GPUs; left as the traces wait for data,
right with trainings that never wait. Where a way chooses the GPU, it does so in Slurm's place, which no plugin can:
what could be gained at most.
"""

from __future__ import annotations

import csv
import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from admission import drawn
from simulate_limits import asked_for

from slurm_plugin.core.config.compute import TURNS
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.simulate import scenario as scenarios
from slurm_plugin.simulate.command import history
from slurm_plugin.simulate.engine import Engine
from slurm_plugin.simulate.gpu import Gpu
from slurm_plugin.simulate.interference import Load, slowdowns
from slurm_plugin.simulate.jobs import Known
from slurm_plugin.simulate.metrics import metrics
from slurm_plugin.simulate.progress import Job
from slurm_plugin.simulate.question import Question
from slurm_plugin.simulate.slurm import controller

MADE = (1, 2, 3, 4)
SHARE = {"share_multi_gpu": True}
FOUR_HOURS = {"min_age_reserve_s": 14_400.0}
FIGURES = ("makespan_s", "mean_completion_s", "energy_j")


def _alike(job: Job, gpu: Gpu) -> float:
    """Kernels as long as one's own."""
    lengths = [abs(math.log(job.load.kernel_s / run.job.load.kernel_s)) for run in gpu.runs]
    return min(lengths, default=1.0)


def _activity(job: Job, gpu: Gpu) -> float:
    """The least SM activity."""
    return sum(run.job.load.mean_smact for run in gpu.runs)


def _harm(job: Job, gpu: Gpu) -> float:
    """The least slowdown for all, by the model itself."""
    before = [run.job.load for run in gpu.runs]
    return sum(slowdowns([*before, job.load])) - sum(slowdowns(before))


def by_sms(load: Load, known: Known) -> Known:
    """Count who takes turns by the SMs that he keeps busy, too."""
    return known if known.smact is None else known._replace(busy=known.smact / TURNS)


def _short_twice(load: Load, known: Known) -> Known:
    """Count a training of short kernels for two."""
    return known._replace(smact=min(1.0, 2 * load.smact)) if load.kernel_s < 20e-6 else known


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run a trace.

    Attributes:
        settings: Of the partition.
        asked: Of the question.
        first: Who starts first: the largest.
        gpu: Which GPU a shared job gets: the least.
        knows: What is known of a job, from what it does and what would be known.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)
    first: Callable[[Job], float] | None = None
    gpu: Callable[[Job, Gpu], float] | None = None
    knows: Callable[[Load, Known], Known] | None = None


BEST = {"settings": SHARE, "asked": FOUR_HOURS}
WAYS = {
    "the default": Way(),
    "the default, 4 h": Way(asked=FOUR_HOURS),
    "overcommit 1.75": Way(settings={"compute_overcommit": 1.75}),
    "overcommit 1.75, 4 h": Way(settings={"compute_overcommit": 1.75}, asked=FOUR_HOURS),
    "two-GPU jobs share, 4 h (S)": Way(**BEST),
    "S, overcommit 1.75": Way(settings={**SHARE, "compute_overcommit": 1.75}, asked=FOUR_HOURS),
    "S, overcommit 1.5": Way(settings={**SHARE, "compute_overcommit": 1.5}, asked=FOUR_HOURS),
    "S, gradients one by one": Way(settings=SHARE, asked={**FOUR_HOURS, "gradients": "one by one"}),
    "S, two-GPU jobs first": Way(**BEST, first=lambda job: job.gpus),
    "S, short first, by --time": Way(**BEST, first=lambda job: -job.limit_s),
    "S, `busy` counts, not SMACT": Way(**BEST, knows=lambda load, known: known._replace(smact=load.busy)),
    "S, SMACT counts of who takes turns, too": Way(**BEST, knows=by_sms),
    "S, short kernels count twice": Way(**BEST, knows=_short_twice),
    "S, the GPU with the least SM activity": Way(**BEST, gpu=_activity),
    "S, the GPU with kernels alike": Way(**BEST, gpu=_alike),
    "S, the GPU where all are slowed least": Way(**BEST, gpu=_harm),
}


def figures(question: Question, way: Way) -> dict[str, Any]:
    """Return the figures of a way."""
    asked = replace(question, settings=replace(PartitionConfig(), **way.settings), **way.asked)
    with ExitStack() as changed:
        if way.knows is not None:
            changed.enter_context(patch.object(scenarios, "_known", _knowing(way.knows)))
        found = scenarios.scenario(asked, history(asked))
        for job in found.jobs if way.first is not None else ():
            job.priority = round(way.first(job))
        engine = Engine(found.cluster, found.jobs)
        if way.gpu is not None:
            changed.enter_context(patch.object(controller, "find", _choosing(engine.hardware.gpus, way.gpu)))
        return metrics(engine.run())


def _knowing(knows: Callable[[Load, Known], Known]) -> Callable[..., Known]:
    told = scenarios._known

    def known(question: Question, load: Load, seen: float | None) -> Known:
        return knows(load, told(question, load, seen))

    return known


def _choosing(gpus: Sequence[Gpu], key: Callable[[Job, Gpu], float]) -> Callable[..., Any]:
    find = controller.find

    def found(job: Job, seats: Any, *more: Any) -> tuple[int, ...] | None:
        chosen = find(job, seats, *more)
        if chosen is None or job.gpus > 1 or job.shards == seats.shards:
            return chosen
        fitting = seats.candidates(chosen[0] // seats.per_node, 1, job.shards)
        return (min(fitting, key=lambda index: key(job, gpus[index])),)

    return found


def main() -> None:
    """Print the tables."""
    options = asked_for(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        known = [row for trace in options.traces for row in csv.DictReader(trace.read_text().splitlines())]
        traces = [*options.traces, *(drawn(seed, known, Path(folder, f"made {seed}.csv")) for seed in MADE)]
        questions = {
            never: [
                Question(
                    trace=trace,
                    nodes=1,
                    gpus_per_node=options.gpus,
                    gpu_memory_mib=options.gpu_memory_mib,
                    settings=PartitionConfig(),
                    pin="bound",
                    never_wait=never,
                )
                for trace in traces
            ]
            for never in (False, True)
        }
        whole = {
            never: [figures(replace(one, baseline="whole"), Way()) for one in asked]
            for never, asked in questions.items()
        }
        _by_trace(traces, questions[False], whole[False])
        _by_way(questions, whole)


def _by_trace(traces: Sequence[Path], questions: Sequence[Question], whole: Sequence[dict[str, Any]]) -> None:
    print("| trace | way | makespan | completion | energy | slowdown | P95 |\n|---|---|---|---|---|---|---|")
    for name in ("the default", "the default, 4 h", "two-GPU jobs share, 4 h (S)", "S, gradients one by one"):
        for trace, question, base in zip(traces, questions, whole, strict=True):
            print(f"| {trace.stem} | {name} | {_cells(_row(figures(question, WAYS[name]), base))} |")


def _by_way(questions: dict[bool, list[Question]], whole: dict[bool, list[dict[str, Any]]]) -> None:
    names = "makespan | completion | energy | slowdown | P95"
    print(f"\n| mean of all traces | {names} | {names} |\n|---|{'---|' * 10}")
    for name, way in WAYS.items():
        means: list[float] = []
        for never, asked in questions.items():
            rows = [_row(figures(one, way), base) for one, base in zip(asked, whole[never], strict=True)]
            means += [statistics.fmean(column) for column in zip(*rows, strict=True)]
        print(f"| {name} | {_cells(means)} |", flush=True)


def _row(found: dict[str, Any], whole: dict[str, Any]) -> list[float]:
    return [*(found[name] / whole[name] for name in FIGURES), found["median_slowdown"], found["p95_slowdown"]]


def _cells(values: Sequence[float]) -> str:
    return " | ".join(f"{value:.2f}" for value in values)


if __name__ == "__main__":
    main()
