"""Our estimator: the analytic account, corrected by what was learned, under a calibrated bound."""

from __future__ import annotations

import math

from gpumemnet.errors import ModelFileError
from gpumemnet.estimate import Estimate
from gpumemnet.estimators import analytic, conformal, features, tree_model
from gpumemnet.gpus import Gpu
from gpumemnet.profile.record import ModelProfile
from gpumemnet.units import MIB

WEIGHTS = "ours"
PLAIN_FACTOR = 1.25
"""Headroom over the analytic account as long as no weights are installed."""
PLAIN_HEADROOM_BYTES = 256 * MIB


def estimate(profile: ModelProfile, gpu: Gpu) -> Estimate:
    """Estimate from the analytic account and what was learned on top of it.

    Args:
        profile: The job.
        gpu: Where it runs; the correction was learned on one GPU, and what lies outside PyTorch is the GPU's base.

    Returns:
        The estimate.
    """
    parts = analytic.breakdown(profile, gpu)
    warnings = [] if gpu.measured else [f"the base of {gpu.name} is {gpu.note}"]
    base = parts["base"]
    account = sum(parts.values()) - base
    try:
        learned = tree_model.load(WEIGHTS)
    except ModelFileError as exc:
        warnings.append(f"estimated without the learned correction: {exc}")
        best, upper = account, int(account * PLAIN_FACTOR) + PLAIN_HEADROOM_BYTES
    else:
        row = features.vector(profile)
        smooth = learned.constants["smooth_mib"] * MIB
        correction = learned.constants["shrink"] * learned.trees["correction"].predict(row)
        width = conformal.width(learned.trees["width"].predict(row), learned.constants, profile)
        best = max(int((account + smooth) * math.exp(correction) - smooth), 0)
        upper = max(int((account + smooth) * math.exp(correction + width) - smooth), best)
    return Estimate(
        estimate_bytes=base + best,
        upper_bytes=base + upper,
        confidence=conformal.CONFIDENCE,
        breakdown_bytes=_spread(parts, best - account),
        family=profile.family,
        estimator="ours",
        gpu=gpu.name,
        warnings=tuple(warnings),
    )


def _spread(parts: dict[str, int], difference: int) -> dict[str, int]:
    """Add the correction to the account's parts, the least certain first, none below zero."""
    corrected = dict(parts)
    for name in ("workspace", "activations", "gradients", "optimizer", "parameters"):
        change = max(difference, -corrected[name])
        corrected[name] += change
        difference -= change
    return corrected
