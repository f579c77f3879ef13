"""`rad advise`: last month's jobs once as they were asked for and once shared, side by side."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from slurm_plugin.admin.simulate.command import Question, simulate
from slurm_plugin.admin.simulate.trace import read_trace
from slurm_plugin.core.clock import Clock

ROWS: tuple[tuple[str, str, float, str], ...] = (
    ("mean waiting", "mean_waiting_s", 3600, "h"),
    ("mean completion", "mean_completion_s", 3600, "h"),
    ("until the last job ended", "makespan_s", 3600, "h"),
    ("GPUs held", "gpu_held_share", 0.01, "%"),
    ("median slowdown", "median_slowdown", 1, ""),
    ("P95 slowdown", "p95_slowdown", 1, ""),
    ("jobs over their limit", "over_limit", 1, ""),
    ("out of memory, run again", "recoveries", 1, ""),
)
"""What is shown: name, figure, divisor, unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What sharing would have changed.

    Attributes:
        jobs: Jobs of the trace.
        known: Those whose peak of GPU memory the trace tells; the others would keep their GPU.
        whole: Figures with a GPU for each job.
        shared: Figures with RAD.
    """

    jobs: int
    known: int
    whole: dict[str, Any]
    shared: dict[str, Any]


def advise(question: Question, clock: Clock) -> Advice:
    """Run a trace both ways.

    Raises:
        ConfigError: The trace cannot be read, or no job of it fits the cluster.
    """
    jobs = read_trace(question.trace).jobs
    return Advice(
        jobs=len(jobs),
        known=sum(job.memory_bytes is not None for job in jobs),
        whole=simulate(replace(question, baseline="whole"), clock),
        shared=simulate(replace(question, baseline="rad"), clock),
    )


def as_text(advice: Advice) -> str:
    """Return a table for people."""
    lines = [f"{'':<26}{'a GPU each':>12}{'shared':>12}"]
    for name, figure, divisor, unit in ROWS:
        cells = (f"{found[figure] / divisor:.4g} {unit}".rstrip() for found in (advice.whole, advice.shared))
        lines.append(f"{name:<26}" + "".join(f"{cell:>12}" for cell in cells))
    lines.append(f"\n{advice.known} of {advice.jobs} jobs have a known peak of GPU memory.")
    if advice.known < advice.jobs:
        lines.append(
            "The others keep a GPU each here; let Slurm record peaks with AccountingStorageTRES=gres/gpumem "
            "and AutoDetect=nvml."
        )
    return "\n".join(lines)


def as_json(advice: Advice) -> str:
    """Return one JSON object."""
    return json.dumps(
        {"jobs": advice.jobs, "known": advice.known, "whole": advice.whole, "shared": advice.shared}
    )
