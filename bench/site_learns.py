"""What a site's own runs bring to its bookings: recorded runs in random order.

The figures are in docs/measurements/2026-11-booking.md.

    python bench/site_learns.py

Every job is one held-out run of a real model on an H200, seen through one text of it that shows shapes (torchinfo,
torchsummary); nobody tuned anything to these. A model belongs to one of USERS users. Jobs come one after another; each
books the 95 % quantile or the bound, as shipped and re-calibrated by the jobs before it (slurm_plugin/core/history/site_quantiles.py),
and is then learned from. `needs x 1.2` is a site whose jobs need a fifth more than those that we measured, `x 0.9` one
whose jobs need less. `one user lies` adds a user who submits a pretended small job of a new model after each true job.
All figures are means over ORDERS orders.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import dataclass

from gpumemnet.learning.dataset.store import HELDOUT_ROWS
from gpumemnet.learning.train.rows import load_rows
from gpumemnet.units import MIB
from slurm_plugin.core.history.site_quantiles import Limits, Observation, limits_of
from slurm_plugin.core.history.site_quantiles_file import applied
from slurm_plugin.core.records.submission import MemoryEstimate
from slurm_plugin.estimate import Estimator

USERS = 20
ORDERS = 10
EVERY = 20
"""Jobs between two times of learning."""
PARTS = (0, 100, 200, 400, 800, 2000)
LIE = -3.0


@dataclass(frozen=True, slots=True)
class Job:
    """One run with its shipped estimate."""

    model: str
    profile: str
    need: float
    shipped: MemoryEstimate


@dataclass(frozen=True, slots=True)
class Told:
    """What one job needed and would book: at 95 % as shipped and as learned, and the bound in the same way."""

    need: float
    booked: tuple[int, int, int, int]


def jobs_of(factor: float) -> list[Job]:
    """Return the held-out runs, needing `factor` times what they did."""
    estimator, found = Estimator(gpu="h200"), []
    for row in load_rows(HELDOUT_ROWS):
        shipped = estimator.of_profile(row.profile.to_text())
        if shipped is not None and shipped.kind.startswith("torch"):
            found.append(
                Job(
                    model=row.profile.model,
                    profile=row.profile.key,
                    need=row.peak_mib * MIB * factor,
                    shipped=shipped,
                )
            )
    return found


def replay(jobs: list[Job], seed: int, *, liar: bool) -> list[Told]:
    """Return what each job books, in an order of its own."""
    draw = random.Random(seed)
    order = draw.sample(jobs, len(jobs))
    owner: dict[str, int] = defaultdict(lambda: draw.randrange(USERS))
    seen: dict[str, dict[tuple[int, str], Observation]] = defaultdict(dict)
    limits: dict[str, Limits | None] = {}
    told = []
    for at, job in enumerate(order):
        if at % EVERY == 0:
            limits = {kind: limits_of(each.values()) for kind, each in seen.items()}
        mine = limits.get(job.shipped.kind)
        learned = job.shipped if mine is None else applied(job.shipped, mine)
        now, then = dict(learned.quantiles)[0.95], dict(job.shipped.quantiles)[0.95]
        booked = (then, now, job.shipped.upper_bytes, learned.upper_bytes)
        told.append(Told(need=job.need, booked=booked))
        width = job.shipped.upper_bytes - job.shipped.estimate_bytes
        score = (job.need - job.shipped.estimate_bytes) / width
        group, user = seen[job.shipped.kind], owner[job.model]
        group[user, job.profile] = Observation(
            user_id=user, model=job.model, profile=job.profile, score=score
        )
        if liar:
            lie = Observation(user_id=USERS, model=f"lie{at}", profile=f"lie{at}", score=LIE)
            group[USERS, lie.profile] = lie
    return told


def report(title: str, factor: float, *, liar: bool = False) -> None:
    """Print misses, and all that was booked over all that was needed, in parts of the order."""
    jobs = jobs_of(factor)
    orders = [replay(jobs, seed, liar=liar) for seed in range(ORDERS)]
    print(f"{title}: {len(jobs)} jobs of {len({job.model for job in jobs})} models, {USERS} users")
    print("  jobs            95 % shipped    95 % learned   bound shipped   bound learned")
    for first, last in itertools.pairwise(PARTS):
        rows = [told for order in orders for told in order[first:last]]
        if not rows:
            break
        needed = sum(told.need for told in rows)
        cells = "".join(
            f"{sum(told.need > told.booked[at] for told in rows) / len(rows):8.1%}"
            f" {sum(told.booked[at] for told in rows) / needed:5.2f}  "
            for at in range(4)
        )
        print(f"  {first + 1:4} to {min(last, len(jobs)):4}{cells}")


if __name__ == "__main__":
    report("the runs as they were", 1.0)
    report("needs x 1.2", 1.2)
    report("needs x 0.9", 0.9)
    report("the runs as they were, one user lies", 1.0, liar=True)
