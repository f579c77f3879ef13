"""What of the two distributions is installed where the tests run."""

from __future__ import annotations

from gpumemnet.estimators.registry import NAMES
from gpumemnet.estimators.tree_model import WEIGHTS

_LEARNED_ELSEWHERE = ("mlp_ensemble", "transformer")

TEXT_ESTIMATORS = tuple(
    name
    for name in NAMES
    if name != "faketensor" and (name not in _LEARNED_ELSEWHERE or (WEIGHTS / f"{name}.json.z").exists())
)
"""Estimators that read summaries and have their weights: those of two come with rad-slurm-train."""
