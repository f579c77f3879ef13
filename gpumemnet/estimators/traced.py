"""Estimate from a trace's profile: the simulated allocator's reserved memory plus the process' base.

Nothing is learned in addition. Known limitations: as for `gpumemnet.tracing.trace`; the profile has no activity.
"""

from __future__ import annotations

from gpumemnet.estimate import Estimate, Quantiles
from gpumemnet.estimators.analytic import KEYS
from gpumemnet.estimators.base import base_bytes, warnings, without_cublas_bytes
from gpumemnet.gpus import Gpu
from gpumemnet.profile.record import ModelProfile
from gpumemnet.tracing.trace.result import quantile_bytes
from gpumemnet.units import to_mib_nearest

NAME = "trace"
TRIES = (
    "cudnn.benchmark is on: the bound is {} MiB higher for it; while cuDNN tries its algorithms, it takes more where"
    " memory is free, and leaves out what does not fit"
)


def estimate(profile: ModelProfile, gpu: Gpu) -> Estimate:
    """Estimate from the profile of a trace.

    Args:
        profile: A profile with source "trace"; its bytes by purpose are those at the peak.
        gpu: The job's GPU.
    """
    base = max(base_bytes(profile, gpu) - (without_cublas_bytes(profile) if profile.convs else 0), 0)
    parts = (profile.parameter_bytes, profile.gradient_bytes, profile.optimizer_bytes, profile.saved_bytes)
    pieces, left = [], profile.reserved_bytes
    for part in parts:
        pieces.append(min(part, left))
        left -= pieces[-1]
    total = base + profile.reserved_bytes
    more = quantile_bytes(
        profile.reserved_bytes,
        profile.borrowed_bytes,
        benchmark=bool(profile.benchmark),
        further_bytes=profile.doubt_bytes,
    )
    bound = more[-1][1]
    notes = warnings(profile, gpu)
    if profile.benchmark:
        plain = quantile_bytes(profile.reserved_bytes, profile.borrowed_bytes)[-1][1]
        notes = (*notes, TRIES.format(to_mib_nearest(bound - profile.doubt_bytes - plain)))
    return Estimate(
        estimate_bytes=total,
        upper_bytes=total + bound,
        confidence=None,  # calibrated on one GPU, driver and release of PyTorch; the user's environment differs
        breakdown_bytes=dict(zip(KEYS, (base, *pieces, left), strict=True)),
        family=profile.family,
        estimator=NAME,
        gpu=gpu.name,
        warnings=notes,
        quantiles=Quantiles(points=((0.5, total), *((share, total + extra) for share, extra in more))),
    )
