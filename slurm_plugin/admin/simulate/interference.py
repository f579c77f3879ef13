"""How fast jobs run beside each other on one GPU under MPS: a small model, fitted to measured groups.

While a job's kernels run, they keep a share of the SMs busy (its intensity). A step takes longer by what the neighbours
compute meanwhile: little where both fill the SMs and the hardware shares them out, much where a job of small kernels
waits behind the large ones of a neighbour. Only what no longer fits into a job's own pauses (its data loader, its
Python) slows it down.

    f_i = 1 + sum over neighbours j of b_j * (FULL * I_i * I_j + WAITING * (1 - I_i) * I_j)
    slowdown_i = ((1 + (b_i * f_i) ** p) / (1 + b_i ** p)) ** (1 / p)

b is the share of the time in which kernels run, I the intensity. Fitted on 301 groups of two to eight trainings on
H200s (`python bench/interference_fit.py`; docs/activity.md has the errors on workloads that were left out).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

FULL, WAITING, SHARPNESS = 0.225, 7.17, 3.66
MOST_INTENSE = 0.95
"""The most that was measured; beyond it the model says nothing."""
IDLE_W, BUSY_W = 88.0, 557.0
"""Draw of an H200 that a process has open, and what full SM activity adds: fitted, mean error 37 W."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a training does to a GPU when it runs alone.

    Attributes:
        smact: Mean SM activity while it trains without pause (0 to 1).
        busy: Share of that time in which any of its kernels runs.
        duty: Share of its time in which it trains; the rest it waits for data.
    """

    smact: float
    busy: float
    duty: float = 1.0

    @property
    def mean_smact(self) -> float:
        """Return the activity that a monitor sees of it alone."""
        return self.smact * self.duty

    @property
    def intensity(self) -> float:
        """Return the share of the SMs that its kernels keep busy while they run."""
        return min(MOST_INTENSE, self.smact / max(self.busy, 0.02))


Slowdowns = Callable[[Sequence[Load]], list[float]]
"""By which factor the time of each of these jobs grows while they share a GPU."""


def slowdowns(loads: Sequence[Load]) -> list[float]:
    """Return by which factor each job's time grows while these jobs share a GPU."""
    if len(loads) < 2:
        return [1.0] * len(loads)
    share = [load.busy * load.duty for load in loads]
    push = [b * load.intensity for b, load in zip(share, loads, strict=True)]
    total = sum(push)
    found = []
    for load, b, own in zip(loads, share, push, strict=True):
        intensity = load.intensity
        grown = b * (1.0 + (total - own) * (FULL * intensity + WAITING * (1.0 - intensity)))
        found.append(((1.0 + grown**SHARPNESS) / (1.0 + b**SHARPNESS)) ** (1.0 / SHARPNESS))
    return found


def together(loads: Sequence[Load], factors: Sequence[float]) -> float:
    """Return the GPU's SM activity while these jobs share it.

    Args:
        loads: What each job does to a GPU of its own.
        factors: How many times slower each one is here; 1 is not slower.
    """
    return min(1.0, sum(load.mean_smact / factor for load, factor in zip(loads, factors, strict=True)))


def power_w(smact: float) -> float:
    """Return the draw of a GPU at this activity."""
    return IDLE_W + BUSY_W * smact
