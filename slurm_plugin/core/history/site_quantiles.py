"""Learn limits for the shipped quantiles from a site's own runs, one set for each group of jobs. No I/O.

A run's score is what it needed above its estimate, in widths: (peak - estimate) / (bound - estimate). The quantiles of
these scores are those of split conformal prediction with its finite-sample correction, Mondrian by group like the
shipped ones (gpumemnet/estimators/conformal.py). Runs are not independent, so they are weighted: a model counts once,
split equally among its users, and each user's part equally among that user's setups (Dunn, Wasserman, Ramdas,
"Distribution-free prediction sets for two-layer hierarchical models", JASA 2022). Older runs weigh less.

Users choose what they run, so the runs of a single user are not trusted. Quantiles are computed again with each user
left out, and the shipped one moves only as far as all of these agree:

    booked = the shipped quantile, brought between the lowest and the highest of them

So no user, with any number of jobs, can bring a quantile below both the shipped one and the one from all other users'
runs, or above both.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from gpumemnet.records import frozen
from slurm_plugin.core.booking.confidence import SHARES

LEAST_USERS = 3
LEAST_MODELS = 20
"""Models that must remain without any one user for a group to be learned. With 20 models the 95th percentile is their
highest score, so nothing above it is lowered."""
MOST_OF_ONE_USER = 10.0
"""Maximum number of models that the runs of one user count as."""
HALF_LIFE_S = 60 * 86400.0
"""A run of this age counts half: PyTorch, drivers and models change."""
FORGOTTEN_S = 4 * HALF_LIFE_S
"""A run of this age no longer counts."""
MOST_SCORE = 4.0
"""No quantile is raised above this many shipped widths: a larger need is another problem, which the misses show."""
BOUND = 0.99
"""From this share on a quantile is a bound: it is not lowered below any observed run."""
MOST_PARTS = 50
"""With more users than this, this many equal groups of them are left out in turn."""
_ROUNDING = 1e-9


@frozen
class Observation:
    """Summary of one user's runs of one model in one setup.

    Attributes:
        user_id: The user.
        model: Key of the model, the same for all its training setups.
        profile: `ModelProfile.key`: model and setup.
        score: The highest need among these runs, in widths above the estimate.
        age_s: Seconds since the last of them.
        runs: Number of runs.
    """

    user_id: int
    model: str
    profile: str
    score: float
    age_s: float = 0.0
    runs: int = 1


@frozen
class QuantileLimits:
    """Limits for the quantiles of one group, in widths above the estimate, one for each of SHARES.

    Attributes:
        lowest: Lower limits; they rise, from 0 at least.
        highest: Upper limits; they rise, to infinity where there are too few runs to lower anything.
        runs: Number of runs behind them.
        models: Number of different models.
        users: Number of different users.
    """

    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    runs: int
    models: int
    users: int


def limits_of(observed: Iterable[Observation]) -> QuantileLimits | None:
    """Return the limits of a group; None if too few models or users were seen, or one user is most of them.

    Args:
        observed: Observations of the group, each pair of user and profile once.
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
    return QuantileLimits(
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
    """Return the weight of each observation: a model counts once, a user as MOST_OF_ONE_USER at most, older ones less.

    Args:
        observed: Observations, each pair of user and profile once.
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
        rising: Observations in order of score.
        weighed: Weight of each.
        above: 1 counts the new job above all others, as split conformal prediction does: a quantile is lowered only to
            a value that certainly covers its share. 0 counts it below all: a quantile is raised only to a value that
            certainly covers no more.
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
    """Return the sets of users left out in turn: none, then each user, or equal groups of many."""
    count = min(len(users), MOST_PARTS)
    return [frozenset(), *(frozenset(users[first::count]) for first in range(count))]
