"""Which `confidence` and `recovery` cost least on whole traces, with jobs that err as held-out models do.

    python bench/confidence.py TRACE ... [--draws 10] [--cards-gib 40,80,141]

Each trace runs on two GPUs of each size, once for each draw of errors: every workload gets those of one held-out run
(estimate, quantiles and bound over the measured peak, together). Jobs whose need exceeds the card are left out. Told
are means over traces and draws, times relative to a GPU for each job:

- misses: share of one-GPU jobs that needed more than they booked;
- stopped: times that the guard stopped a job because others needed what they had booked, for each 100 jobs;
- out: times that a job met its cap, for each 100 jobs;
- hurt: times that a job ended which held no more than it booked;
- back: times that a job was put back into the queue, for each 100 jobs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_plugin.core.booking.confidence import Recovers
from slurm_plugin.core.config.load import PartitionConfig
from slurm_plugin.core.records.submission import Confidence
from slurm_plugin.simulate.engine import Engine
from slurm_plugin.simulate.metrics import metrics
from slurm_plugin.simulate.question import Question
from slurm_plugin.simulate.scenario import scenario

CONFIDENCES: tuple[Confidence, ...] = ("bound", 0.95, 0.9, 0.8, "auto")
RECOVERIES: tuple[Recovers, ...] = ("exclusive", "escalate")
COLUMNS = (
    "booked",
    "rerun",
    "misses",
    "stopped",
    "out",
    "hurt",
    "back",
    "booked/used",
    "makespan",
    "completion",
    "waiting",
    "P95 slowdown",
)


def main() -> None:
    """Print a table for each size of GPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--cards-gib", default="40,80,141")
    options = parser.parse_args()
    for card_gib in map(int, options.cards_gib.split(",")):
        print(f"\n{card_gib} GiB\n\n| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
        for settings in ways():
            rows = [
                figures(trace, card_gib, settings, draw)
                for trace in options.traces
                for draw in range(options.draws)
            ]
            told = {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}
            print(
                f"| {settings.confidence} | {settings.recovery} | {told['misses']:.1%} | {told['stopped']:.2f} |"
                f" {told['out']:.2f} | {told['hurt']:.2f} | {told['back']:.1f} | {told['booked']:.2f} |"
                f" {told['makespan']:.3f} | {told['completion']:.3f} | {told['waiting']:.3f} | {told['p95']:.2f} |",
                flush=True,
            )


def ways() -> Iterator[PartitionConfig]:
    """Yield the settings to try."""
    for recovery in RECOVERIES:
        for confidence in CONFIDENCES:
            yield PartitionConfig(confidence=confidence, recovery=recovery)


def figures(trace: Path, card_gib: int, settings: PartitionConfig, draw: int) -> dict[str, float]:
    """Return what one run of a trace came to.

    Args:
        trace: Its file.
        card_gib: Memory of each of two GPUs.
        settings: The partition's.
        draw: Which errors its workloads get.
    """
    question = Question(
        trace=trace,
        nodes=1,
        gpus_per_node=2,
        gpu_memory_mib=card_gib * 1024 - 1000,
        settings=settings,
        pin="bound",
        draw=draw,
    )
    found = scenario(question)
    shared = [job for job in found.jobs if not job.whole]
    missed = sum(job.peak_bytes > (job.booking.memory_bytes or 0) for job in shared if job.booking)
    told = metrics(Engine(found.cluster, found.jobs).run())
    whole = _whole(question)
    per_100 = 100.0 / len(found.jobs)
    return {
        "misses": missed / max(1, len(shared)),
        "stopped": told["stopped"] * per_100,
        "out": (told["crashes"] - told["stopped"] - told["hurt"]) * per_100,
        "hurt": told["hurt"] * per_100,
        "back": told["put_backs"] * per_100,
        "booked": told["booked_over_used"] or 1.0,
        "makespan": told["makespan_s"] / whole["makespan_s"],
        "completion": told["mean_completion_s"] / whole["mean_completion_s"],
        "waiting": told["mean_waiting_s"] / whole["mean_waiting_s"],
        "p95": told["p95_slowdown"],
    }


_WHOLE: dict[tuple[Path, int], dict[str, Any]] = {}


def _whole(question: Question) -> dict[str, Any]:
    key = (question.trace, question.gpu_memory_mib)
    if key not in _WHOLE:
        found = scenario(replace(question, baseline="whole"))
        _WHOLE[key] = metrics(Engine(found.cluster, found.jobs).run())
    return _WHOLE[key]


if __name__ == "__main__":
    main()
