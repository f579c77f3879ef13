"""The estimate: the one function that other packages call."""

from __future__ import annotations

from dataclasses import dataclass

from gpumemnet.base import DEFAULT_GPU, Gpu, gpu_named
from gpumemnet.errors import SetupError
from gpumemnet.profile import Family, ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a training job is expected to need on one GPU.

    Attributes:
        estimate_bytes: Best guess of what nvidia-smi shows for the process at its peak.
        upper_bytes: Bound that is booked; exceeded by at most 1 - confidence of jobs.
        confidence: Of the bound, as calibrated on runs that the estimator did not see; None if nothing says it.
        breakdown_bytes: By purpose: base, parameters, gradients, optimizer, activations, workspace; the sum is
            estimate_bytes.
        family: Kind of network.
        estimator: Which estimator said so.
        gpu: Type of GPU it is for.
        warnings: One sentence for each thing that was assumed.
    """

    estimate_bytes: int
    upper_bytes: int
    confidence: float | None
    breakdown_bytes: dict[str, int]
    family: Family
    estimator: str
    gpu: str
    warnings: tuple[str, ...] = ()


def estimate(profile: ModelProfile, *, gpu: str | Gpu = DEFAULT_GPU, estimator: str = "ours") -> Estimate:
    """Estimate a job's GPU memory from its profile.

    Args:
        profile: The job.
        gpu: Type of GPU, by name or (with a site's own base) as a record.
        estimator: A name in `gpumemnet.estimators.ESTIMATORS`.

    Returns:
        The estimate.

    Raises:
        SetupError: GPU or estimator is unknown.
    """
    from gpumemnet.estimators import ESTIMATORS

    if estimator not in ESTIMATORS:
        raise SetupError(f"unknown estimator '{estimator[:40]}'; known: {', '.join(ESTIMATORS)}")
    card = gpu_named(gpu) if isinstance(gpu, str) else gpu
    return ESTIMATORS[estimator](profile, card)
