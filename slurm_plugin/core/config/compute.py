"""How much expected SM activity Slurm may pack onto one GPU, and what that costs the jobs in speed.

Measured on H200s under MPS (gpumemnet/data/interference_h200.csv, `python
bench/interference/slowdown_by_activity.py`): concurrent trainings, back to back, by the sum of the SM activity that
they have alone. A training that waits for data, or one on a GPU not packed to the limit, is slowed less.
"""

from __future__ import annotations

from itertools import pairwise

SLOWED: tuple[tuple[float, float], ...] = ((1.3, 1.0), (2.05, 1.5), (3.5, 2.0), (4.6, 2.5), (6.7, 3.0))
"""(factor, sum): on a GPU packed to this sum, 9 of 10 trainings run at most this many times slower than alone."""
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


def overcommit_for(slowdown: float) -> float:
    """Return the `compute_overcommit` of a slowdown, by linear interpolation between measured points.

    Args:
        slowdown: How many times slower than alone 9 of 10 jobs may run; outside of SLOWED its ends count.

    >>> overcommit_for(1.0), overcommit_for(2.05), round(overcommit_for(2.775), 2), overcommit_for(9.0)
    (1.0, 1.5, 1.75, 3.0)
    """
    for (factor, activity), (next_factor, next_activity) in pairwise(SLOWED):
        if slowdown <= next_factor:
            part = max(0.0, slowdown - factor) / (next_factor - factor)
            return activity + part * (next_activity - activity)
    return SLOWED[-1][1]


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
