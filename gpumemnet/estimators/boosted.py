"""Baseline: plain gradient boosting on the summary's totals and counts, without the analytical model."""

from __future__ import annotations

import math

from gpumemnet.estimate import Estimate
from gpumemnet.estimators import features, tree_model
from gpumemnet.estimators.analytic import KEYS
from gpumemnet.estimators.base import base_bytes, warnings
from gpumemnet.gpus import Gpu
from gpumemnet.profile.record import ModelProfile
from gpumemnet.units import MIB

CONFIDENCE = 0.99
PLAIN = (
    "parameters",
    "batch_size",
    "seq_len",
    "output_sum_bytes",
    "input_bytes",
    "gradient_checkpointing",
    "weights",
    "convs",
    "linears",
    "norms",
    "activations",
    "attentions",
    "embeddings",
    "recurrents",
)
"""Numbers of a profile that a summary shows, without knowledge of how training uses memory."""


def columns() -> list[int]:
    """Return the columns of `features.vector` that this estimator uses."""
    return [
        index
        for index, name in enumerate(features.NAMES)
        if name.removeprefix("log_") in PLAIN or name.startswith(("family=", "optimizer=", "precision="))
    ]


def estimate(profile: ModelProfile, gpu: Gpu) -> Estimate:
    """Estimate from boosted trees; the bound is the estimate times one conformal factor.

    Args:
        profile: The job.
        gpu: The job's GPU; the trees include their training GPU's base, so only the difference in base counts.

    Returns:
        The estimate.
    """
    learned = tree_model.load("boosted")
    row = features.vector(profile)
    fixed_bytes = base_bytes(profile, gpu)
    log_need_mib = learned.trees["need"].predict(row)
    need_bytes = int(math.exp(log_need_mib) * MIB)
    upper_bytes = int(math.exp(log_need_mib + learned.constants["width"]) * MIB)
    parameters = min(profile.parameter_bytes, need_bytes)
    parts = dict.fromkeys(KEYS, 0) | {
        "base": fixed_bytes,
        "parameters": parameters,
        "activations": need_bytes - parameters,
    }
    return Estimate(
        estimate_bytes=fixed_bytes + need_bytes,
        upper_bytes=fixed_bytes + upper_bytes,
        confidence=CONFIDENCE,
        breakdown_bytes=parts,
        family=profile.family,
        estimator="boosted",
        gpu=gpu.name,
        warnings=warnings(profile, gpu),
    )
