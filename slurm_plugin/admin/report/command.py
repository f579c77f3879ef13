"""`rad report RUN...`: compare replays on one page."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from slurm_plugin.admin.report.charts import charts
from slurm_plugin.admin.report.page import page
from slurm_plugin.admin.report.runs import read_runs
from slurm_plugin.admin.report.text import tables


def compare(runs: tuple[Path, ...], *, out: Path, png: Path | None) -> list[str]:
    """Write the page, and the charts if requested; return the main figures and a line for each file.

    Args:
        runs: Files that bench/replay wrote.
        out: The page.
        png: A folder for the charts; None for none.

    Raises:
        ConfigError: A file is not a run, or matplotlib is missing.
    """
    found = read_runs(runs)
    out.write_text(page(found), encoding="utf-8")
    lines = [*tables(found), f"{out}: {len(found)} runs"]
    if png is not None:
        from slurm_plugin.admin.report.png import write_pngs

        scenes = groupby(found, key=lambda run: run.scene)
        drawn = sum(write_pngs(charts(list(some)), png) for _, some in scenes)
        lines.append(f"{png}: {drawn} charts")
    return lines
