"""The page: for each trace a table of figures, relative to the whole-GPU runs if there are any, and its charts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from statistics import fmean

from replay.report.charts import charts
from replay.report.runs import TraceRun
from replay.report.svg import svg

RELATIVE = (
    "makespan_s",
    "mean_waiting_s",
    "mean_execution_s",
    "mean_completion_s",
    "p95_completion_s",
    "energy_j",
)
"""Figures that are compared with whole GPUs."""
SHOWN = (
    ("jobs", "jobs"),
    ("ended_well", "ended well"),
    ("makespan_s", "makespan (s)"),
    ("mean_waiting_s", "mean waiting (s)"),
    ("p95_waiting_s", "P95 waiting (s)"),
    ("mean_execution_s", "mean execution (s)"),
    ("p95_execution_s", "P95 execution (s)"),
    ("mean_completion_s", "mean completion (s)"),
    ("p95_completion_s", "P95 completion (s)"),
    ("median_slowdown", "median slowdown"),
    ("p95_slowdown", "P95 slowdown"),
    ("max_slowdown", "largest slowdown"),
    ("crashes", "out of memory"),
    ("recoveries", "recovered"),
    ("lost_to_crashes_s", "lost to crashes (s)"),
    ("requeues", "requeued"),
    ("booked_over_used", "booked over used"),
    ("energy_j", "energy (J)"),
    ("smact_mean", "mean SM activity"),
    ("memory_mean_share", "mean share of memory"),
    ("start_up_share", "share of start-up"),
)
STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:1340px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;font-size:13px}td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child{text-align:left}td{white-space:nowrap}.wide{overflow-x:auto}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr))}
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#333}svg .t{font-weight:600;font-size:13px}
.g{stroke:#e3e3e3}.note{color:#a33}small{color:#777}
"""


def page(runs: Sequence[TraceRun]) -> str:
    """Return the page as HTML; runs of one trace are grouped."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Replays</title><style>{STYLE}</style><h1>Replays</h1>",
    ]
    for _, some in groupby(runs, key=lambda run: run.scene):
        parts += _section(list(some))
    return "\n".join([*parts, "</html>\n"])


def _section(runs: list[TraceRun]) -> list[str]:
    whole = whole_runs(runs)
    parts = [f"<h2>{escape(runs[0].title)}</h2>"]
    if any(run.simulated for run in runs):
        parts.append('<p class="note">Simulated GPUs and training jobs; no real GPU was used.</p>')
    for run in runs:
        if run.cut:
            parts.append(
                f'<p class="note">{escape(run.label)} was cut off before its last job had ended.</p>'
            )
    heads = "".join(f"<th>{escape(run.label)}</th>" for run in runs)
    rows = "".join(_row(name, title, runs, whole) for name, title in SHOWN)
    parts.append(_table(f"<tr><th></th>{heads}</tr>{rows}"))
    if whole and len(runs) > 1:
        parts.append("<p><small>In brackets: relative to the mean of the runs on whole GPUs.</small></p>")
        parts += _spread(runs, whole)
    parts.append('<div class="charts">')
    parts += [svg(chart) for chart in charts(runs)]
    parts.append("</div>")
    machines = sorted({_machine(run) for run in runs})
    return [*parts, *(f"<p><small>{escape(line)}</small></p>" for line in machines)]


def _base(name: str, run: TraceRun, whole: Sequence[TraceRun]) -> float | None:
    """Return the baseline of a run's figure: its mean over the runs on whole GPUs with as many users, else over all."""
    alike = [each for each in whole if each.users == run.users] or whole
    values = [each.figures[name] for each in alike if each.figures.get(name)]
    return fmean(values) if values else None


def _spread(runs: Sequence[TraceRun], whole: Sequence[TraceRun]) -> list[str]:
    """Return a table of each variant's range over its repetitions, relative to whole GPUs; empty if none has two."""
    rows = []
    for way in dict.fromkeys(run.way for run in runs if run.policy != "whole"):
        again = [run for run in runs if run.way == way and not run.cut]
        if len(again) < 2:
            continue
        cells = []
        for name in ("makespan_s", "mean_completion_s", "energy_j"):
            found = [run.figures[name] / base for run in again if (base := _base(name, run, whole))]
            cells.append(f"<td>{min(found):.2f} to {max(found):.2f}</td>" if found else "<td>-</td>")
        rows.append(f"<tr><td>{escape(way)}</td><td>{len(again)}</td>{''.join(cells)}</tr>")
    if not rows:
        return []
    heads = "<tr><th>relative to whole GPUs</th><th>runs</th><th>makespan</th><th>completion</th><th>energy</th></tr>"
    return [_table(heads + "".join(rows))]


def _table(rows: str) -> str:
    """Return a table that is scrolled by itself where it is wider than the page."""
    return f'<div class="wide"><table>{rows}</table></div>'


def _row(name: str, title: str, runs: Sequence[TraceRun], whole: Sequence[TraceRun]) -> str:
    cells = "".join(f"<td>{escape(cell(name, run, whole))}</td>" for run in runs)
    return f"<tr><td>{escape(title)}</td>{cells}</tr>"


def whole_runs(runs: Sequence[TraceRun]) -> list[TraceRun]:
    """Return the baseline runs on whole GPUs."""
    return [run for run in runs if run.policy == "whole" and not run.cut]


def cell(name: str, run: TraceRun, whole: Sequence[TraceRun]) -> str:
    """Return a figure, and in brackets its ratio to that of whole GPUs."""
    value = run.figures.get(name)
    if value is None:
        return "-"
    base = _base(name, run, whole) if name in RELATIVE and run.policy != "whole" else None
    return f"{_shown(value)} ({value / base:.2f})" if base else _shown(value)


def _shown(value: float) -> str:
    """Return a figure with four significant digits and no exponent."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _machine(run: TraceRun) -> str:
    names = ", ".join(sorted({str(device["name"]) for device in run.devices}))
    return f"{len(run.devices)} GPUs ({names}); {run.machine['slurm']}; commit {run.machine['commit']}"
