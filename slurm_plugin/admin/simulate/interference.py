"""How fast jobs run beside each other on one GPU under MPS.

The coefficients are a first guess until pairs have been measured. A job alone is slowed by nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a job does to a GPU.

    Attributes:
        smact: Share of SM time that it keeps busy while it computes (0 to 1).
        dram: Share of the memory's bandwidth that it uses then (0 to 1).
        duty: Share of its time alone in which it computes; the rest it waits for data.
    """

    smact: float
    dram: float
    duty: float = 1.0

    @property
    def mean_smact(self) -> float:
        """Return the activity that a monitor sees of it alone."""
        return self.smact * self.duty


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """How much of a neighbour's computing is added to a step: base + smact * s_i * s_j + dram * m_i * m_j."""

    base: float = 0.0
    smact: float = 1.0
    dram: float = 0.5


MEASURED = Coefficients()


def slowdowns(loads: Sequence[Load], fit: Coefficients = MEASURED) -> list[float]:
    """Return by which factor each job's time grows while these jobs share a GPU.

    A step takes longer by what the neighbours compute meanwhile; a job that waits for data part of the time only feels
    it once its steps no longer fit into the pauses.
    """
    if len(loads) < 2:
        return [1.0] * len(loads)
    busy = [load.duty for load in loads]
    factors = [1.0] * len(loads)
    for _ in range(2):
        for i, load in enumerate(loads):
            grown = 1.0
            for j, other in enumerate(loads):
                if i != j:
                    grown += busy[j] * (
                        fit.base + fit.smact * load.smact * other.smact + fit.dram * load.dram * other.dram
                    )
            factors[i] = grown
        busy = [min(1.0, load.duty * factor) for load, factor in zip(loads, factors, strict=True)]
    return [max(1.0, load.duty * factor) for load, factor in zip(loads, factors, strict=True)]


def together(loads: Sequence[Load], factors: Sequence[float]) -> float:
    """Return the GPU's SM activity while these jobs share it."""
    return min(1.0, sum(load.mean_smact / factor for load, factor in zip(loads, factors, strict=True)))
