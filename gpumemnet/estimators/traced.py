"""Estimate from a trace's profile: the simulated allocator's reserved memory plus the process' base.

Nothing is learned in addition. Known limitations: as for `gpumemnet.tracing.trace`; the profile has no activity.
"""

from __future__ import annotations

from gpumemnet.estimate import Estimate, Quantiles
from gpumemnet.estimators.analytic import KEYS
from gpumemnet.estimators.base import base_bytes, warnings
from gpumemnet.gpus import Gpu
from gpumemnet.profile.record import ModelProfile
from gpumemnet.tracing.trace.result import quantile_bytes

NAME = "trace"


def estimate(profile: ModelProfile, gpu: Gpu) -> Estimate:
    """Estimate from the profile of a trace.

    Args:
        profile: A profile with source "trace"; its bytes by purpose are those at the peak.
        gpu: The job's GPU.
    """
    base = base_bytes(profile, gpu)
    parts = (profile.parameter_bytes, profile.gradient_bytes, profile.optimizer_bytes, profile.saved_bytes)
    pieces, left = [], profile.reserved_bytes
    for part in parts:
        pieces.append(min(part, left))
        left -= pieces[-1]
    total = base + profile.reserved_bytes
    more = quantile_bytes(profile.reserved_bytes, profile.borrowed_bytes)
    return Estimate(
        estimate_bytes=total,
        upper_bytes=total + more[-1][1],
        confidence=None,  # calibrated on one GPU, driver and release of PyTorch; the user's environment differs
        breakdown_bytes=dict(zip(KEYS, (base, *pieces, left), strict=True)),
        family=profile.family,
        estimator=NAME,
        gpu=gpu.name,
        warnings=warnings(profile, gpu),
        quantiles=Quantiles(points=((0.5, total), *((share, total + extra) for share, extra in more))),
    )
