"""What a training job is expected to need."""

from __future__ import annotations

from dataclasses import dataclass

from gpumemnet.names import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Likely:
    """A number with the interval that held the measured one in 80 % of the trainings left out of the fit.

    Attributes:
        value: Best guess.
        low: One in ten is below.
        high: One in ten is above.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a training does to a GPU that it has to itself, if it never waits for data.

    Attributes:
        gpu: Type of GPU that this was learned on.
        step_s: Seconds of one step.
        smact: SM activity (0 to 1).
        busy: Share of the time in which any kernel runs.
        dram: Share of the memory's bandwidth in use.
    """

    gpu: str
    step_s: Likely
    smact: Likely
    busy: Likely
    dram: Likely


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
        activity: What it does to the GPU; None if there is no profile to tell it from.
    """

    estimate_bytes: int
    upper_bytes: int
    confidence: float | None
    breakdown_bytes: dict[str, int]
    family: Family
    estimator: str
    gpu: str
    warnings: tuple[str, ...] = ()
    activity: Activity | None = None
