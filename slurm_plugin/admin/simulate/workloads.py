"""The measured tables: what each workload does to a GPU, and how far estimates are from the need."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from importlib import resources

from slurm_plugin.admin.simulate.interference import Load

UNKNOWN = Load(smact=0.75, dram=0.3, duty=0.5)
"""A training of which nobody knows anything."""


def estimate_errors() -> tuple[tuple[float, float], ...]:
    """Return (estimate, bound) over the real peak for each held-out run (`bench/estimate_errors.py`)."""
    return tuple((float(row["estimate"]), float(row["bound"])) for row in _rows("estimate_errors.csv"))


def measured() -> Mapping[str, Load]:
    """Return the measured workloads; there are none yet."""
    return {
        row["workload"]: Load(smact=float(row["smact"]), dram=float(row["dram"]), duty=float(row["duty"]))
        for row in _rows("workloads.csv")
    }


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("slurm_plugin.admin.simulate").joinpath(name).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))
