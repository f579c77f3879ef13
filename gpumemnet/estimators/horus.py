"""Horus' formula (Yeung et al., TPDS 2022), as applied in the thesis: activations, parameters, gradients.

Memory = (B * A + P + B * P) * 4 bytes, with batch size B, activations per sample A and parameters P. Kept as a
baseline. Known limitations: it counts a gradient per sample, no optimizer, and every output whether kept or not.
"""

from __future__ import annotations

from gpumemnet.estimate import Estimate
from gpumemnet.estimators.analytic import KEYS
from gpumemnet.gpus import Gpu
from gpumemnet.names import Precision
from gpumemnet.profile.record import ModelProfile


def estimate(profile: ModelProfile, gpu: Gpu) -> Estimate:
    """Apply the formula; it has no bound, so the bound is the estimate.

    Args:
        profile: The job.
        gpu: Not used: the formula has no base.

    Returns:
        The estimate.
    """
    item = 2 if profile.precision == Precision.BF16 else 4
    parameters = profile.parameters * item
    gradients = profile.batch_size * profile.parameters * item
    activations = profile.output_sum_bytes
    total = parameters + gradients + activations
    return Estimate(
        estimate_bytes=total,
        upper_bytes=total,
        confidence=None,
        breakdown_bytes=dict(zip(KEYS, (0, parameters, gradients, 0, activations, 0), strict=True)),
        family=profile.family,
        estimator="horus",
        gpu=gpu.name,
    )
