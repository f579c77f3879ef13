"""What a site learns of its estimates: quantiles stay in order, misses are few, and no job learns for others."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.history.site_quantiles import (
    BOUND,
    HALF_LIFE_S,
    LEAST_MODELS,
    LEAST_USERS,
    MOST_OF_ONE_USER,
    MOST_SCORE,
    Observation,
    QuantileLimits,
    limits_of,
    weights,
)
from slurm_plugin.core.history.site_quantiles_file import LearnedQuantiles, applied, from_text, to_text
from slurm_plugin.core.records.submission import MemoryEstimate
from slurm_plugin.core.units import GIB

SHIPPED = MemoryEstimate(
    estimate_bytes=10 * GIB,
    upper_bytes=14 * GIB,
    confidence=0.99,
    source="rad",
    quantiles=tuple(
        (share, 10 * GIB + int(4 * GIB * min(1.3, at / SHARES.index(BOUND))))
        for at, share in enumerate(SHARES)
    ),
    kind="torchinfo",
)
AT = {share: at for at, share in enumerate(SHARES)}
SCORES = st.floats(-5.0, 9.0)


def observations(users: st.SearchStrategy[int]) -> st.SearchStrategy[list[Observation]]:
    one = st.builds(
        Observation,
        user_id=users,
        model=st.integers(0, 60).map(str),
        profile=st.integers(0, 9).map(str),
        score=SCORES,
        age_s=st.floats(0.0, 5 * HALF_LIFE_S),
    )
    return st.lists(one, max_size=80, unique_by=lambda each: (each.user_id, each.model, each.profile))


def site(scores: list[float], *, users: int = 5, age_s: float = 0.0) -> list[Observation]:
    """Return runs of different models, dealt out to users."""
    return [
        Observation(user_id=at % users, model=f"m{at}", profile=f"p{at}", score=score, age_s=age_s)
        for at, score in enumerate(scores)
    ]


def score_at(estimate: MemoryEstimate, share: float) -> float:
    booked = dict(estimate.quantiles)[share]
    return (booked - SHIPPED.estimate_bytes) / (SHIPPED.upper_bytes - SHIPPED.estimate_bytes)


def learned(observed: list[Observation]) -> MemoryEstimate:
    limits = limits_of(observed)
    return SHIPPED if limits is None else applied(SHIPPED, limits)


@settings(deadline=None)
@given(observations(st.integers(0, 9)))
def test_quantiles_rise_and_stay_above_the_best_guess(observed: list[Observation]) -> None:
    found = learned(observed)
    sizes = [n_bytes for _, n_bytes in found.quantiles]
    assert sizes == sorted(sizes)
    assert sizes[0] >= found.estimate_bytes == SHIPPED.estimate_bytes
    assert found.upper_bytes == dict(found.quantiles)[BOUND]
    assert sizes[-1] <= SHIPPED.estimate_bytes + MOST_SCORE * 4 * GIB + 1
    assert bool(found.learned) == (limits_of(observed) is not None)


HONEST = [
    Observation(user_id=at % 9, model=f"m{at}", profile=f"p{at}", score=0.2 + 0.8 * (at * 7919 % 90) / 90)
    for at in range(90)
]


@settings(deadline=None, max_examples=60)
@given(
    fakes=st.lists(
        st.tuples(st.integers(0, 120), st.integers(0, 3), SCORES, st.floats(0, HALF_LIFE_S)), max_size=60
    )
)
def test_no_user_brings_a_booking_below_what_others_runs_and_the_shipped_one_say(
    fakes: list[tuple[int, int, float, float]],
) -> None:
    mine = {
        (model, setup): Observation(
            user_id=99, model=f"m{model}", profile=f"f{model}-{setup}", score=score, age_s=age_s
        )
        for model, setup, score, age_s in fakes
    }
    with_me, without = learned([*HONEST, *mine.values()]), others_quantiles()
    for share, booked in with_me.quantiles:
        shipped, others = score_at(SHIPPED, share), without[AT[share]]
        made = (booked - SHIPPED.estimate_bytes) / (4 * GIB)
        assert min(shipped, others) - 1e-6 <= made <= max(shipped, min(others, 1.0)) + 1e-6


def others_quantiles() -> list[float]:
    """Return the plain conformal quantiles of HONEST, in which everybody is one of nine and each model counts once."""
    scores = sorted(each.score for each in HONEST)
    ranks = [math.ceil((len(scores) + 1) * share - 1e-9) for share in SHARES]
    return [scores[rank - 1] if rank <= len(scores) else math.inf for rank in ranks]


def test_thousands_of_jobs_of_one_user_count_as_a_few_models() -> None:
    mine = [Observation(user_id=7, model=f"f{at}", profile=f"f{at}", score=-3.0) for at in range(2000)]
    assert sum(weights(mine)) == pytest.approx(MOST_OF_ONE_USER)
    assert learned([*HONEST, *mine]).upper_bytes == SHIPPED.upper_bytes  # 90 models say nothing of 99 %


def test_two_users_that_agree_lower_little() -> None:
    """Accounts are not free as jobs are: what several can do is bounded by what each of them counts."""
    fakes = [
        Observation(user_id=user, model=f"f{user}-{at}", profile=f"{at}", score=-3.0)
        for user in (98, 99)
        for at in range(1000)
    ]
    honest, with_them = learned(HONEST), learned([*HONEST, *fakes])
    # Twenty models more, at the low end, among 90: the 95 % quantile of all is the 94 % quantile of the others.
    at_most = sorted(each.score for each in HONEST)[math.ceil(0.93 * 90) - 1]
    assert score_at(with_them, 0.95) >= min(at_most, score_at(SHIPPED, 0.95))
    assert score_at(honest, 0.95) >= score_at(with_them, 0.95)


def test_copies_of_a_model_count_once() -> None:
    copies = [Observation(user_id=user, model="same", profile="same", score=0.1) for user in range(40)]
    setups = [Observation(user_id=user, model="same", profile=f"{user}", score=0.1) for user in range(40)]
    assert sum(weights(copies)) == pytest.approx(1) == pytest.approx(sum(weights(setups)))
    assert limits_of(copies) is None is limits_of(setups)


@pytest.mark.parametrize(
    ("count", "users", "enough"),
    [
        (LEAST_MODELS, 4, False),  # less a user it is too few
        (2 * LEAST_MODELS, 4, True),
        (10 * LEAST_MODELS, LEAST_USERS, False),  # less a user there are too few
        (10 * LEAST_MODELS, LEAST_USERS + 1, True),
    ],
)
def test_enough_models_of_enough_users_without_any_one(count: int, users: int, enough: bool) -> None:
    assert (limits_of(site([0.5] * count, users=users)) is not None) == enough


def test_old_runs_fade_and_are_forgotten() -> None:
    assert limits_of(site([0.5] * 40)) is not None
    assert limits_of(site([0.5] * 40, age_s=HALF_LIFE_S)) is None  # 16 of them, without one user
    assert limits_of(site([0.5] * 400, age_s=5 * HALF_LIFE_S)) is None


def test_a_bound_is_not_lowered_below_any_run_that_was_seen() -> None:
    low = site([0.1] * 400, users=20)
    assert learned(low).upper_bytes < SHIPPED.upper_bytes
    seen = [*low, Observation(user_id=1, model="other", profile="other", score=0.9)]
    found = learned(seen)
    assert found.upper_bytes == SHIPPED.estimate_bytes + math.ceil(0.9 * 4 * GIB)
    assert score_at(found, 0.9) == pytest.approx(0.1)


def test_many_misses_of_several_users_raise_bookings() -> None:
    found = learned(site([1.5] * 60))
    assert score_at(found, 0.5) == pytest.approx(1.5)
    assert found.upper_bytes == SHIPPED.estimate_bytes + 6 * GIB
    one_user = [replace(each, user_id=1, score=9.0) for each in HONEST[:20]]
    assert (
        score_at(learned([*HONEST, *(replace(each, model=f"x{each.model}") for each in one_user)]), BOUND)
        == 1.0
    )


def test_many_users_are_left_out_in_parts() -> None:
    found = limits_of(site([0.01 * at for at in range(300)], users=150))
    assert found is not None and (found.users, found.models, found.runs) == (150, 300, 300)


@pytest.mark.parametrize(("drift", "least", "shipped_most"), [(0.0, 0.87, 0.6), (0.5, 0.8, 0.3)])
def test_coverage_on_a_site_that_differs_from_the_shipped_runs_and_drifts(
    drift: float, least: float, shipped_most: float
) -> None:
    """A year of models: what is booked at 90 % holds 90 % of them, 80 % where need drifts half a width a year."""
    draw = random.Random(7)
    covered = shipped_covered = tried = 0
    seen: list[tuple[float, Observation]] = []
    for day in range(0, 360, 3):
        now_s = day * 86400.0
        found = learned([replace(each, age_s=now_s - then_s) for then_s, each in seen])
        for at in range(3):
            score, name = draw.gauss(0.5 + drift * day / 360, 0.35), f"{day}-{at}"
            if day >= 90:
                tried += 1
                covered += score <= score_at(found, 0.9)
                shipped_covered += score <= score_at(SHIPPED, 0.9)
            mine = Observation(user_id=draw.randrange(12), model=name, profile=name, score=score)
            seen.append((now_s, mine))
    assert covered / tried >= least
    assert shipped_covered / tried <= shipped_most


def test_the_file_says_what_was_learned_and_a_damaged_one_says_nothing() -> None:
    limits = limits_of(HONEST)
    assert limits is not None and limits.highest[-1] == math.inf
    kept = LearnedQuantiles(made_for="x", time_s=5.0, groups={"torchinfo@h200": limits})
    text = to_text(kept)
    assert "99" not in kept.groups and from_text(text) is not None
    found = from_text(text)
    assert found is not None and (found.made_for, found.time_s) == ("x", 5.0)
    again = found.groups["torchinfo@h200"]
    assert again.lowest == pytest.approx(limits.lowest) and again.highest == pytest.approx(limits.highest)
    for broken in (
        "",
        "[]",
        "{}",
        text[:-3],
        text.replace('"version":1', '"version":2'),
        text.replace("[", "[7,", 2),
    ):
        assert from_text(broken) is None
    falling = replace(limits, lowest=(1.0, *limits.lowest[1:-1], 0.0))
    assert from_text(to_text(replace(kept, groups={"a": falling}))) is None
    nan = text.replace(str(round(limits.lowest[0], 6)), "NaN", 1)
    assert from_text(nan) is None


def test_users_are_informed_what_changed() -> None:
    found = learned(site([0.1] * 400, users=20))
    assert found.learned == (
        "re-calibrated by 400 runs of this site (400 models, 20 users): 95 % = estimate x 1.04 (shipped 1.29), "
        "the bound = estimate x 1.04 (shipped 1.40)"
    )


def test_an_estimate_that_is_its_own_bound_stays() -> None:
    limits = QuantileLimits(lowest=(2.0,) * 17, highest=(math.inf,) * 17, runs=9, models=9, users=9)
    stated = replace(SHIPPED, upper_bytes=SHIPPED.estimate_bytes, quantiles=())
    assert applied(stated, limits) is stated
