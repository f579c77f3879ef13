"""How `rad status` looks: rich where it is installed and somebody looks, plain text elsewhere, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from slurm_plugin.admin.status import GpuStatus
from slurm_plugin.core.units import human

if TYPE_CHECKING:
    from rich.table import Table

HEADINGS = (
    "GPU",
    "SMACT",
    "used",
    "booked",
    "usable",
    "job",
    "user",
    "booked",
    "estimate",
    "now",
    "peak",
    "SMACT",
)
_NUMBERS = range(1, len(HEADINGS))


def rows_of(gpus: Sequence[GpuStatus]) -> list[tuple[str, ...]]:
    """Return one row for each job, and one for each GPU without any."""
    rows = []
    for gpu in gpus:
        note = "" if gpu.state == "ok" else f" {gpu.state}"
        flag = "!" if gpu.smact_source == "nvml-utilisation" else ""
        head = (
            f"{gpu.index}{note}",
            _share(gpu.smact) + flag,
            human(gpu.used_bytes),
            human(gpu.booked_bytes),
            human(gpu.usable_bytes),
        )
        cells = [
            (
                str(job.job_id) + (" whole" if job.kind == "whole" else ""),
                str(job.user_id),
                human(job.booked_bytes),
                _size(job.estimate_bytes),
                _size(job.used_bytes),
                _size(job.peak_bytes),
                _share(job.smact),
            )
            for job in gpu.jobs
        ]
        if gpu.strangers_bytes:
            cells.append(("outside", "", "", "", human(gpu.strangers_bytes), "", ""))
        for number, cell in enumerate(cells or [("-", *[""] * 6)]):
            rows.append((*(head if number == 0 else ("",) * len(head)), *cell))
    return rows


def as_text(gpus: Sequence[GpuStatus]) -> str:
    """Return a plain table."""
    rows = [HEADINGS, *rows_of(gpus)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "  ".join(
            cell.rjust(width) if column in _NUMBERS else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, *notes(gpus)])


def as_table(gpus: Sequence[GpuStatus]) -> Table:
    """Return a table for rich."""
    from rich.table import Table

    table = Table(caption="\n".join(notes(gpus)) or None)
    for column, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if column in _NUMBERS else "left")
    for row in rows_of(gpus):
        table.add_row(*row)
    return table


def as_json(gpus: Sequence[GpuStatus]) -> str:
    """Return everything, for programs."""
    return json.dumps({"version": 1, "gpus": [asdict(gpu) for gpu in gpus]}, indent=1)


def notes(gpus: Sequence[GpuStatus]) -> list[str]:
    """Return what a reader must know about the figures."""
    found = []
    if any(not gpu.averaged for gpu in gpus):
        found.append("No rad-monitor: activity of this moment only, and no peaks.")
    if any(gpu.smact_source == "nvml-utilisation" for gpu in gpus):
        found.append("! is utilisation, not SMACT: it calls one busy block a full GPU.")
    return found


def _size(n_bytes: int | None) -> str:
    return "-" if n_bytes is None else human(n_bytes)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"
