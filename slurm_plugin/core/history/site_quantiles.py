"""What a site's own runs say of our estimates: limits for the shipped quantiles, one set for each group of jobs. Pure.

A run's score is what it needed above its estimate, in widths: (peak - estimate) / (bound - estimate). The quantiles of
these scores are those of split conformal prediction with its finite-sample correction, Mondrian by group as the shipped
ones (gpumemnet/estimators/conformal.py). Runs are not independent, so they are weighed: a model counts once, in equal
parts for each user who runs it, and each user's part for each setup that he trains it with (Dunn, Wasserman, Ramdas,
"Distribution-free prediction sets for two-layer hierarchical models", JASA 2022). Older runs weigh less.

A user chooses what he runs, so nobody's runs are believed alone. Quantiles are computed again with each user left out,
and the shipped one moves only as far as all of these agree:

    booked = the shipped quantile, brought between the lowest and the highest of them

So no user, with whatever number of jobs, brings a quantile below what is shipped and what everybody else's runs say, or
above both.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_plugin.core.booking.confidence import SHARES

LEAST_USERS = 3
LEAST_MODELS = 20
"""What must be left without any one user for a group to be learned. With 20 models the 95th percentile is the highest
score of them, so nothing above it is lowered."""
MOST_OF_ONE_USER = 10.0
"""Models that the runs of one user count as at most."""
HALF_LIFE_S = 60 * 86400.0
"""A run so old counts half: PyTorch, drivers and what people train change."""
FORGOTTEN_S = 4 * HALF_LIFE_S
"""A run so old no longer counts."""
MOST_SCORE = 4.0
"""Nothing is raised above so many shipped widths: who needs more has another problem, which the misses show."""
BOUND = 0.99
"""From this share on a quantile is a bound: it is not lowered below any run that was seen."""
MOST_PARTS = 50
"""Of more users, so many equal parts are left out in turn."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one user's runs of one model in one setup came to.

    Attributes:
        user_id: The user.
        model: What is the same for a model however it is trained.
        profile: `ModelProfile.key`: model and setup.
        score: The highest need among these runs, in widths above the estimate.
        age_s: Seconds since the last of them.
        runs: How many there were.
    """

    user_id: int
    model: str
    profile: str
    score: float
    age_s: float = 0.0
    runs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Between what the quantiles of one group are brought, in widths above the estimate, one for each of SHARES.

    Attributes:
        lowest: Below these no quantile stays; they rise, from 0 at least.
        highest: Above these none stays; they rise, to infinity where there are too few runs to lower anything.
        runs: Runs behind them.
        models: Different models among these.
        users: Different users.
    """

    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    runs: int
    models: int
    users: int


def limits_of(observed: Iterable[Observation]) -> Limits | None:
    """Return the limits of a group; None if too few models or users were seen, or one user is most of them.

    Args:
        observed: What was seen of the group, each pair of user and profile once.
    """
    kept = sorted(
        (each for each in observed if 0 <= each.age_s < FORGOTTEN_S and math.isfinite(each.score)),
        key=lambda each: each.score,
    )
    lowest, highest = [], []
    for part in _parts(sorted({each.user_id for each in kept})):
        rest = [each for each in kept if each.user_id not in part]
        weighed = weights(rest)
        if len({each.user_id for each in rest}) < LEAST_USERS or sum(weighed) < LEAST_MODELS:
            return None
        highest.append(_quantiles(rest, weighed, above=1.0))
        lowest.append([max(0.0, min(point, MOST_SCORE)) for point in _quantiles(rest, weighed, above=0.0)])
    seen = kept[-1].score
    return Limits(
        lowest=tuple(map(min, zip(*lowest, strict=True))),
        highest=tuple(
            max(*points, seen) if share >= BOUND else max(points)
            for share, points in zip(SHARES, zip(*highest, strict=True), strict=True)
        ),
        runs=sum(each.runs for each in kept),
        models=len({each.model for each in kept}),
        users=len({each.user_id for each in kept}),
    )


def weights(observed: Sequence[Observation]) -> list[float]:
    """Return how much each counts: a model once, a user as MOST_OF_ONE_USER at most, older ones less.

    Args:
        observed: Each pair of user and profile once.
    """
    setups = Counter((each.model, each.user_id) for each in observed)
    users = Counter(model for model, _ in setups)
    plain = [
        0.5 ** (each.age_s / HALF_LIFE_S) / users[each.model] / setups[each.model, each.user_id]
        for each in observed
    ]
    totals: dict[int, float] = defaultdict(float)
    for each, weight in zip(observed, plain, strict=True):
        totals[each.user_id] += weight
    return [
        weight * min(1.0, MOST_OF_ONE_USER / totals[each.user_id])
        for each, weight in zip(observed, plain, strict=True)
    ]


def _quantiles(rising: Sequence[Observation], weighed: Sequence[float], *, above: float) -> list[float]:
    """Return the quantile of the scores for each of SHARES, where the new job counts as one more.

    Args:
        rising: What was seen, by score.
        weighed: How much each counts.
        above: 1 counts the new job above all others, as split conformal prediction does: a quantile is lowered only to
            what surely holds its share. 0 counts it below all: one is raised only to what surely does not hold more.
    """
    total = sum(weighed) + 1.0
    found: list[float] = []
    reached, position = 0.0, -1
    for share in SHARES:
        wanted = share * total - (1.0 - above) - _ROUNDING
        while (reached < wanted or position < 0) and position + 1 < len(rising):
            position += 1
            reached += weighed[position]
        found.append(rising[position].score if reached >= wanted else math.inf)
    return found


def _parts(users: Sequence[int]) -> list[frozenset[int]]:
    """Return who is left out in turn: nobody, and each user, or equal parts of many."""
    count = min(len(users), MOST_PARTS)
    return [frozenset(), *(frozenset(users[first::count]) for first in range(count))]
