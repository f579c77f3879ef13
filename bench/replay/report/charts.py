"""Charts as data: comparisons of runs, and each run over time (the kinds of thesis figures 6.5 to 6.15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replay.report.runs import TraceRun
from slurm_plugin.core.units import GIB, MIB

COMPARED = (
    ("makespan_s", "Makespan"),
    ("mean_waiting_s", "Mean waiting"),
    ("mean_execution_s", "Mean execution"),
    ("mean_completion_s", "Mean completion"),
)
OVER_TIME = (
    ("used_mib", "GPU memory in use (GiB)", MIB / GIB),
    ("smact", "SM activity", 1.0),
    ("power_w", "Power (W)", 1.0),
    ("jobs", "Jobs on the GPU", 1.0),
)
"""Samples of each GPU: name, title, factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A bar for each label in each group.

    Attributes:
        title: Of the chart.
        unit: Of the values.
        groups: Along the axis.
        labels: The bars of each group.
        values: By label, then by group.
    """

    title: str
    unit: str
    groups: Sequence[str]
    labels: Sequence[str]
    values: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledLines:
    """A line for each label.

    Attributes:
        title: Of the chart.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        labels: The lines.
        points: By label: (x, y), x rising.
        steps: Whether a value is constant until the next one.
    """

    title: str
    x: str
    y: str
    labels: Sequence[str]
    points: Sequence[Sequence[tuple[float, float]]]
    steps: bool = False


Chart = Bars | LabelledLines


def charts(runs: Sequence[TraceRun]) -> tuple[Chart, ...]:
    """Return the charts of comparable runs."""
    labels = [run.label for run in runs]
    times = Bars(
        title="Time",
        unit="s",
        groups=[title for _, title in COMPARED],
        labels=labels,
        values=[[float(run.figures[name]) for name, _ in COMPARED] for run in runs],
    )
    slow = LabelledLines(
        title="Slowdown of the jobs' steps",
        x="times longer than alone",
        y="share of jobs",
        labels=labels,
        points=[_shares(run.slowdowns) for run in runs],
        steps=True,
    )
    energy = Bars(
        title="Energy",
        unit="kJ",
        groups=["all GPUs"],
        labels=labels,
        values=[[float(run.figures["energy_j"]) / 1000] for run in runs],
    )
    found: list[Chart] = [times, slow, energy]
    for run in runs:
        found += [_over_time(run, *what) for what in OVER_TIME]
    return tuple(found)


def _over_time(run: TraceRun, name: str, title: str, factor: float) -> LabelledLines:
    return LabelledLines(
        title=f"{title}: {run.label}",
        x="seconds since the first submission",
        y=title,
        labels=[f"GPU {device['index']}" for device in run.devices],
        points=[
            [
                (at_s, value * factor)
                for at_s, value in zip(run.times_s, device[name], strict=True)
                if value is not None
            ]
            for device in run.devices
        ],
    )


def _shares(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """Return the share of jobs at or below each value."""
    count = len(ordered)
    return [(1.0, 0.0), *((value, (k + 1) / count) for k, value in enumerate(ordered))] if count else []
