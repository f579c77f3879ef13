"""The main figures of replays, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from replay.report.page import cell, whole_runs
from replay.report.runs import TraceRun
from slurm_plugin.admin.table import as_table

_COLUMNS = (
    ("makespan_s", "makespan s"),
    ("mean_completion_s", "completion s"),
    ("energy_j", "energy J"),
    ("median_slowdown", "slowdown"),
    ("p95_slowdown", "P95"),
    ("crashes", "out of memory"),
    ("ended_well", "ended well"),
)


def tables(runs: Sequence[TraceRun]) -> Iterator[str]:
    """Yield a table for each trace: a line for each run, and in brackets the ratio to the mean of whole GPUs.

    Args:
        runs: As `read_runs` returns them.
    """
    for _, some in groupby(runs, key=lambda run: run.scene):
        these = list(some)
        whole = whole_runs(these)
        title = these[0].title + (", simulated" if these[0].simulated else "")
        rows = [
            (f"{run.label}{' (cut off)' * run.cut}", *(cell(name, run, whole) for name, _ in _COLUMNS))
            for run in these
        ]
        yield as_table((title, *(heading for _, heading in _COLUMNS)), rows)
