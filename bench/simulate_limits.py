"""What keeps a shared cluster from ending a trace sooner: one limit after the other taken away, and orders tried.

    PYTHONPATH=. python bench/simulate_limits.py TRACE ... [--gpus 2] [--gpu-memory-mib 143000]

All figures are relative to whole GPUs on the same cluster. Floors are worked out from the trace alone: nothing that
shares GPUs as Slurm and RAD do can be below them.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.simulate.command import history
from slurm_plugin.simulate.engine import Engine
from slurm_plugin.simulate.interference import Load
from slurm_plugin.simulate.metrics import metrics
from slurm_plugin.simulate.progress import Job
from slurm_plugin.simulate.question import Question
from slurm_plugin.simulate.scenario import Scenario, scenario

HOUR_S = 3600.0
MEMORY = {"compute_overcommit": 0.0}
SHARE = {"share_multi_gpu": True}
Change = Callable[[Scenario], Scenario]


def same(found: Scenario) -> Scenario:
    """Change nothing."""
    return found


def unhindered(found: Scenario) -> Scenario:
    """Let jobs on one GPU run as fast as alone, however many they are."""

    def nobody_slows(loads: Sequence[Load]) -> list[float]:
        return [1.0] * len(loads)

    return replace(found, cluster=replace(found.cluster, interference=nobody_slows))


def true_limits(found: Scenario) -> Scenario:
    """Let every user know how long his job runs alone."""
    for job in found.jobs:
        job.limit_s = job.start_up_s + job.trace.duration_s
    return found


def first(key: Callable[[Job], float]) -> Change:
    """Return what starts the jobs of the largest key first, the oldest of them before others."""

    def ordered(found: Scenario) -> Scenario:
        for job in found.jobs:
            job.priority = round(key(job))
        return found

    return ordered


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run a trace: settings of the partition, of the question, and a change of what is simulated."""

    settings: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)
    change: Change = same


HUGE = {"gpu_memory_mib": 2_000_000}
LIMITS = {
    "as it is": Way(),
    "estimates are exact": Way(asked={"estimates": "oracle"}),
    "memory without end": Way(asked=HUGE),
    "users know how long jobs run": Way(change=true_limits),
    "compute without end": Way(settings=MEMORY, change=unhindered),
    "compute and memory without end": Way(settings=MEMORY, asked=HUGE, change=unhindered),
    "two-GPU jobs share, too": Way(settings=SHARE),
    "two-GPU jobs share, memory alone": Way(settings={**SHARE, **MEMORY}),
    "two-GPU jobs share, compute without end": Way(settings={**SHARE, **MEMORY}, change=unhindered),
}
ORDERS = {
    "oldest first (as it is)": Way(),
    "long first": Way(change=first(lambda job: job.trace.duration_s)),
    "short first": Way(change=first(lambda job: -job.trace.duration_s)),
    "much SM activity first": Way(
        change=first(lambda job: job.trace.duration_s * job.load.mean_smact * job.gpus)
    ),
    "little memory first": Way(change=first(lambda job: -job.shards)),
    "two-GPU jobs first": Way(change=first(lambda job: job.gpus)),
    "two-GPU jobs last": Way(change=first(lambda job: -job.gpus)),
    **{
        f"bf_min_age_reserve of {hours} h": Way(asked={"min_age_reserve_s": hours * HOUR_S})
        for hours in (1, 2, 4, 8)
    },
    "the same, 4 h, memory alone": Way(settings=MEMORY, asked={"min_age_reserve_s": 4 * HOUR_S}),
    "memory alone": Way(settings=MEMORY),
    "two-GPU jobs share": Way(settings=SHARE),
    "two-GPU jobs share, 4 h": Way(settings=SHARE, asked={"min_age_reserve_s": 4 * HOUR_S}),
    "two-GPU jobs share, memory alone": Way(settings={**SHARE, **MEMORY}),
    "two-GPU jobs share, 4 h, history": Way(
        settings=SHARE, asked={"min_age_reserve_s": 4 * HOUR_S, "activity": "history"}
    ),
    **{
        f"max_slowdown {factor:g}, {activity}": Way(
            settings={"max_slowdown": factor}, asked={"activity": activity}
        )
        for factor in (2.05, 3.5, 6.7)
        for activity in ("told", "history")
    },
}


def floors(found: Scenario, span_s: float) -> dict[str, float]:
    """Return the least makespans that the trace itself allows, as shares of a span.

    Args:
        found: The trace with what its jobs do.
        span_s: Makespan on whole GPUs.
    """
    gpus = found.cluster.nodes * found.cluster.per_node
    held_s = sum(job.trace.duration_s * job.gpus for job in found.jobs if job.gpus > 1)
    shared_s = sum(job.trace.duration_s * job.load.mean_smact for job in found.jobs if job.gpus == 1)
    own_s = sum(job.trace.duration_s * job.load.mean_smact * job.gpus for job in found.jobs if job.gpus > 1)
    floor_s = {
        "floor: the last job, alone": max(job.trace.submit_s + job.trace.duration_s for job in found.jobs),
        "floor: SM activity of all jobs": (own_s + shared_s) / gpus,
        "floor: the same, two-GPU jobs alone": (held_s + shared_s) / gpus,
    }
    return {name: at_s / span_s for name, at_s in floor_s.items()}


def figures(question: Question, way: Way) -> dict[str, Any]:
    """Return the figures of a way."""
    asked = replace(
        question, settings=replace(PartitionConfig(confidence="bound"), **way.settings), **way.asked
    )
    found = way.change(scenario(asked, history(asked)))
    return metrics(Engine(found.cluster, found.jobs).run())


def asked_for(what: str | None) -> argparse.Namespace:
    """Return the traces, and the node's GPUs, that a command line names.

    Args:
        what: The program's docstring.
    """
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--gpu-memory-mib", type=int, default=143_000)
    return parser.parse_args()


def main() -> None:
    """Print the tables."""
    options = asked_for(__doc__)
    questions = [
        Question(
            trace=trace,
            nodes=1,
            gpus_per_node=options.gpus,
            gpu_memory_mib=options.gpu_memory_mib,
            settings=PartitionConfig(confidence="bound"),
            pin="bound",
        )
        for trace in options.traces
    ]
    whole = [figures(replace(question, baseline="whole"), Way()) for question in questions]
    print(
        f"| makespan | {' | '.join(trace.stem for trace in options.traces)} |\n|---|{'---|' * len(questions)}"
    )
    spans = [found["makespan_s"] for found in whole]
    lows = [floors(scenario(question), span_s) for question, span_s in zip(questions, spans, strict=True)]
    for name in lows[0]:
        print(f"| {name} | {' | '.join(f'{low[name]:.2f}' for low in lows)} |")
    for name, way in LIMITS.items():
        found = [figures(question, way)["makespan_s"] for question in questions]
        print(f"| {name} | {' | '.join(f'{one / s:.2f}' for one, s in zip(found, spans, strict=True))} |")
    print("\n| mean over the traces | makespan | completion | energy | slowdown | P95 | two-GPU jobs wait |")
    print("|---|---|---|---|---|---|---|")
    for name, way in ORDERS.items():
        rows = [_row(figures(question, way), base) for question, base in zip(questions, whole, strict=True)]
        print(
            f"| {name} | {' | '.join(f'{statistics.fmean(cells):.2f}' for cells in zip(*rows, strict=True))} |"
        )


def _row(found: dict[str, Any], whole: dict[str, Any]) -> list[float]:
    names = ("makespan_s", "mean_completion_s", "energy_j")
    wait_s = max(whole["mean_waiting_multi_gpu_s"], 1.0)
    return [
        *(found[name] / whole[name] for name in names),
        found["median_slowdown"],
        found["p95_slowdown"],
        found["mean_waiting_multi_gpu_s"] / wait_s,
    ]


if __name__ == "__main__":
    main()
