"""Jobs of several GPUs that share them, on a cluster where three of ten jobs are such: what counts as their compute.

    PYTHONPATH=bench:. python bench/simulate_several.py [--jobs 2000] [--nodes 20]

Random jobs as in simulate_scale.py. "Ended" are jobs so slow beside others that Slurm would end them: past their limit
of twice the time that they take alone, half an hour at least, which RAD doubles.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from simulate_scale import write_trace

from slurm_plugin.admin.simulate import scenario as scenarios
from slurm_plugin.admin.simulate.command import settings_of, simulate
from slurm_plugin.admin.simulate.interference import Load
from slurm_plugin.admin.simulate.jobs import Known
from slurm_plugin.admin.simulate.question import Question
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.compute import TURNS

SHOWN = ("mean_completion_s", "mean_waiting_multi_gpu_s", "makespan_s")
_known = scenarios._known


def by_sms(question: Question, load: Load, seen: float | None) -> Known:
    """Return what is known of a job whose SM activity counts, though it takes turns."""
    known = _known(question, load, seen)
    return known if known.smact is None else known._replace(busy=known.smact / TURNS)


def main() -> None:
    """Print the table, relative to whole GPUs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.csv")
        write_trace(trace, options.jobs, rate=options.nodes * 0.0016)
        question = Question(
            trace=trace,
            nodes=options.nodes,
            gpus_per_node=8,
            gpu_memory_mib=80_000,
            settings=settings_of(None, None),
        )
        alone = replace(question, settings=replace(question.settings, share_multi_gpu=False))
        again = replace(question, activity="history")
        whole = figures(replace(question, baseline="whole"))
        print("| | completion | jobs of several GPUs wait | makespan | slowdown | P95 | ended |")
        print("|---|---|---|---|---|---|---|")
        for name, asked, sms in (
            ("they keep their GPUs", alone, False),
            ("they share, counted by SM activity", question, True),
            ("**they share, counted by time**", question, False),
            ("the same, the trace's second time", again, False),
        ):
            found = figures(asked, sms=sms)
            shares = " | ".join(f"{found[name] / whole[name]:.2f}" for name in SHOWN)
            slowed = f"{found['median_slowdown']:.2f} | {found['p95_slowdown']:.2f}"
            print(f"| {name} | {shares} | {slowed} | {found['over_limit']} |", flush=True)


def figures(question: Question, *, sms: bool = False) -> dict[str, Any]:
    """Return a simulation's figures.

    Args:
        question: What is simulated.
        sms: Whether SM activity counts of jobs that take turns.
    """
    with patch.object(scenarios, "_known", by_sms) if sms else nullcontext():
        return simulate(question, SystemClock())


if __name__ == "__main__":
    main()
