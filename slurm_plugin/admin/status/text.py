"""Output of `rad status`: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from slurm_plugin.admin.table import as_table
from slurm_plugin.admin.top.cells import duration
from slurm_plugin.core.units import human
from slurm_plugin.monitor.export.status import GpuStatus

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


def rows_of(gpus: Sequence[GpuStatus], name_of: Callable[[int], str]) -> list[tuple[str, ...]]:
    """Return one row for each job, and one for each GPU without any.

    Args:
        gpus: The GPUs of a node.
        name_of: A user's name by number.
    """
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
                name_of(job.user_id),
                human(job.booked_bytes),
                _size(job.estimate_bytes),
                _size(job.used_bytes),
                _size(job.peak_bytes),
                _share(job.smact) if job.idle_s is None else f"idle {duration(job.idle_s)}",
            )
            for job in gpu.jobs
        ]
        if gpu.unmanaged_bytes:
            cells.append(("outside", "", "", "", human(gpu.unmanaged_bytes), "", ""))
        for number, cell in enumerate(cells or [("-", *[""] * 6)]):
            rows.append((*(head if number == 0 else ("",) * len(head)), *cell))
    return rows


def as_text(gpus: Sequence[GpuStatus], name_of: Callable[[int], str] = str) -> str:
    """Return a plain table.

    Args:
        gpus: The GPUs of a node.
        name_of: A user's name by number.
    """
    return "\n".join([as_table(HEADINGS, rows_of(gpus, name_of)), *notes(gpus)])


def as_json(gpus: Sequence[GpuStatus]) -> str:
    """Return all fields as JSON."""
    return json.dumps({"version": 1, "gpus": [asdict(gpu) for gpu in gpus]}, indent=1)


def notes(gpus: Sequence[GpuStatus]) -> list[str]:
    """Return notes that explain the figures."""
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
