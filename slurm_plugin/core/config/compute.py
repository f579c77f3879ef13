"""Limit the expected SM activity that Slurm packs onto one GPU, by the slowdown that its jobs may have.

Measured on H200s under MPS (gpumemnet/data/interference_h200.csv, `python
bench/interference/slowdown_by_activity.py`): concurrent trainings, back to back, by the sum of the SM activity that
they have alone. A training that waits for data, or one on a GPU not packed to the limit, is slowed less.
"""

from __future__ import annotations

TRAINS = 0.6
"""Share of its time in which a training without an observed run is assumed to train; its profile describes one that
never waits for data. By SM activity, those of three traces train for 0.52, 0.45 and 0.51 of their time
(docs/measurements/2026-11-sharing-simulated.md); in simulation, the extra tenth costs no makespan and keeps small jobs
from starving."""
TURNS = 1.37
"""Cost of time slicing with another job's kernels, outside of MPS: such trainings are slowed
b * (1 + 1.37 * the sum of the other jobs' b) times, where b is the share of the time in which kernels run (168 that
were measured, 6 % off at the median; docs/measurements/2026-11-activity.md). A fair share of
the time is nearer (2 %), but shards add up."""


def with_waits(busy: float | None, learned_smact: float | None, measured_smact: float) -> float | None:
    """Return the share of the time in which a job's kernels run, waits for data included; None if unknown.

    Args:
        busy: The same for a training that never waits, from its profile.
        learned_smact: Its SM activity, likewise.
        measured_smact: SM activity of earlier runs.

    >>> with_waits(0.8, 0.4, 0.1), with_waits(0.8, 0.4, 0.9), with_waits(None, 0.4, 0.1), with_waits(0.8, None, 0.1)
    (0.2, 0.8, None, None)
    """
    if busy is None or not learned_smact:
        return None
    return busy * min(1.0, measured_smact / learned_smact)
