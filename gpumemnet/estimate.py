"""What a training job is expected to need."""

from __future__ import annotations

from dataclasses import dataclass

from gpumemnet.names import Family


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
