"""Estimated needs of a training job."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple

from gpumemnet.names import Family
from gpumemnet.records import frozen


class Likely(NamedTuple):
    """A number with an interval that contained the measured one in 80 % of the trainings left out of the fit.

    Attributes:
        value: Best guess.
        low: One in ten is below.
        high: One in ten is above.
    """

    value: float
    low: float
    high: float


class Activity(NamedTuple):
    """Activity of a training on a dedicated GPU, without waits for data.

    Attributes:
        gpu: Type of GPU that the fit used.
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


@frozen
class Quantiles:
    """Memory that is enough for each share of jobs.

    Attributes:
        points: Pairs of a share (0.5 to below 1) and the bytes that this share of jobs stays below; both rise.
    """

    points: tuple[tuple[float, int], ...]

    def __post_init__(self) -> None:
        shares, sizes = [share for share, _ in self.points], [size for _, size in self.points]
        if not self.points or shares != sorted(set(shares)) or sizes != sorted(sizes):
            raise ValueError(f"quantiles must rise: {self.points}")

    def at(self, share: float) -> int:
        """Return the bytes that a share of jobs stays below.

        Between two points, bytes are linear in the logarithm of the share of jobs above, like the tail of the measured
        errors; outside the points the nearest one is returned.

        Args:
            share: Share of jobs, more than 0 and less than 1.
        """
        if not 0 < share < 1:
            raise ValueError(f"a share of jobs is between 0 and 1, not {share}")
        after = bisect_left(self.points, share, key=lambda point: point[0])
        if after == len(self.points):
            return self.points[-1][1]
        right, more = self.points[after]
        if after == 0 or right == share:
            return more
        left, less = self.points[after - 1]
        way = math.log((1 - left) / (1 - share)) / math.log((1 - left) / (1 - right))
        return less + int(way * (more - less))


class Estimate(NamedTuple):
    """Estimated needs of a training job on one GPU.

    Attributes:
        estimate_bytes: Best guess of what nvidia-smi shows for the process at its peak.
        upper_bytes: Bound that is booked; exceeded by at most 1 - confidence of jobs.
        confidence: Confidence of the bound, calibrated on runs that the estimator did not see; None if unknown.
        breakdown_bytes: By purpose: base, parameters, gradients, optimizer, activations, workspace; the sum is
            estimate_bytes.
        family: Kind of network.
        estimator: Name of the estimator.
        gpu: Its type of GPU.
        warnings: One sentence for each assumption.
        activity: Its activity on the GPU; None without a profile.
        quantiles: Memory by share of such jobs; None for estimators without quantiles.
        traced: Settings of the traced training, which the user need not have stated; "" without a trace.
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
    quantiles: Quantiles | None = None
    traced: str = ""

    def quantile(self, share: float) -> int:
        """Return the bytes that a share of jobs stays below; the bound if there are no quantiles.

        Rises with the share, from about `estimate_bytes` at 0.5; `upper_bytes` at `confidence`.

        Args:
            share: Share of jobs, more than 0 and less than 1. Above 0.999 the result is constant.
        """
        return self.upper_bytes if self.quantiles is None else self.quantiles.at(share)
