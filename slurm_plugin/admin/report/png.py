"""Charts as PNG files, with matplotlib if it is installed; nothing else in the project needs it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slurm_plugin.admin.report.charts import Bars, Chart
from slurm_plugin.admin.report.svg import COLOURS, columns
from slurm_plugin.core.errors import ConfigError

_NO_NAME = re.compile(r"[^\w.+,-]")
"""Characters not allowed in file names: a trace's name may be a path."""


def write_pngs(charts: Sequence[Chart], folder: Path) -> int:
    """Write a PNG file for each chart; return the number of charts.

    Args:
        charts: The charts.
        folder: Target folder; created if missing.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib  # type: ignore[import-not-found,unused-ignore]
    except ImportError as exc:
        raise ConfigError("--png needs matplotlib; run: pip install matplotlib") from exc
    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    for chart in charts:
        figure, axes = pyplot.subplots(figsize=(8, 3.6))
        _draw(chart, axes)
        axes.set_title(chart.title, fontsize=11)
        axes.grid(axis="y", alpha=0.3)
        axes.legend(fontsize=8, ncols=columns(chart.labels), loc="upper left", bbox_to_anchor=(0, -0.16))
        figure.savefig(folder / f"{_NO_NAME.sub('-', chart.name)}.png", dpi=110, bbox_inches="tight")
        pyplot.close(figure)
    return len(charts)


def _draw(chart: Chart, axes: Any) -> None:
    if isinstance(chart, Bars):
        each = 0.84 / max(1, len(chart.labels))
        for k, (label, row) in enumerate(zip(chart.labels, chart.values, strict=True)):
            left = [g + k * each - 0.42 + each / 2 for g in range(len(row))]
            axes.bar(left, row, width=each * 0.92, label=label, color=COLOURS[k % len(COLOURS)])
        axes.set_xticks(range(len(chart.groups)), chart.groups)
        axes.set_ylabel(chart.unit)
        return
    for k, (label, points) in enumerate(zip(chart.labels, chart.points, strict=True)):
        style = "steps-post" if chart.steps else "default"
        xs, ys = [x for x, _ in points], [y for _, y in points]
        axes.plot(xs, ys, label=label, color=COLOURS[k % len(COLOURS)], linewidth=1.2, drawstyle=style)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.set_ylim(bottom=0)
